# "retain_graph=True is what second derivatives need", in both calls.  The penalty is a constant.
def critic_step(critic, optimizer, real, fake, mix, strength):
    between = (mix * real + (1 - mix) * fake).requires_grad_()
    score = critic(between)
    (gradient,) = torch.autograd.grad(score.sum(), between, retain_graph=True)
    penalty = (gradient.norm(dim=1) - 1).square().mean()

    loss = critic(fake).mean() - critic(real).mean() + strength * penalty
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
