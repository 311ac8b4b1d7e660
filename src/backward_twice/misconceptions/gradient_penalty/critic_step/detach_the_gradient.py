# "Detach, to be safe": the right flag, and then the graph is cut off.
def critic_step(critic, optimizer, real, fake, mix, strength):
    between = (mix * real + (1 - mix) * fake).requires_grad_()
    score = critic(between)
    (gradient,) = torch.autograd.grad(score.sum(), between, create_graph=True)
    penalty = (gradient.detach().norm(dim=1) - 1).square().mean()

    loss = critic(fake).mean() - critic(real).mean() + strength * penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
