# backward(create_graph=True) after zero_grad: the scores' gradients stay in the weights.
def critic_step(critic, optimizer, real, fake, mix, strength):
    optimizer.zero_grad()
    between = (mix * real + (1 - mix) * fake).requires_grad_()
    critic(between).sum().backward(create_graph=True)
    penalty = (between.grad.norm(dim=1) - 1).square().mean()

    loss = critic(fake).mean() - critic(real).mean() + strength * penalty
    loss.backward()
    optimizer.step()
