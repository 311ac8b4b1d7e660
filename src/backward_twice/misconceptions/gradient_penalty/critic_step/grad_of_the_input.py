# Takes the input's gradient from .grad after a plain backward: a number without a graph.
def critic_step(critic, optimizer, real, fake, mix, strength):
    between = (mix * real + (1 - mix) * fake).requires_grad_()
    score = critic(between)
    score.sum().backward(retain_graph=True)
    gradient = between.grad
    penalty = (gradient.norm(dim=1) - 1).square().mean()

    loss = critic(fake).mean() - critic(real).mean() + strength * penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
