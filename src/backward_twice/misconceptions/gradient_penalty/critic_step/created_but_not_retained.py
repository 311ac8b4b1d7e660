# "create_graph made a new graph, so let the old one go."  The second derivative needs it.
def critic_step(critic, optimizer, real, fake, mix, strength):
    between = (mix * real + (1 - mix) * fake).requires_grad_()
    score = critic(between)
    (gradient,) = torch.autograd.grad(score.sum(), between, create_graph=True, retain_graph=False)
    penalty = (gradient.norm(dim=1) - 1).square().mean()

    loss = critic(fake).mean() - critic(real).mean() + strength * penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
