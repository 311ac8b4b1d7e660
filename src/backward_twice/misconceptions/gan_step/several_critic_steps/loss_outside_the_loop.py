# "One loss, several backward calls": the weights that it was computed with have changed.
def several_critic_steps(
    generator, discriminator, optimizer_g, optimizer_d, noise, real, critic_steps
):
    fake = generator(noise)
    score_real, score_fake = discriminator(real), discriminator(fake.detach())
    loss_d = F.softplus(-score_real).mean() + F.softplus(score_fake).mean()
    for _ in range(critic_steps):
        optimizer_d.zero_grad()
        loss_d.backward(retain_graph=True)
        optimizer_d.step()

    optimizer_g.zero_grad()
    F.softplus(-discriminator(fake)).mean().backward()
    optimizer_g.step()
