# "The samples are used again, so retain."  Every pass leaves a gradient in the generator.
def several_critic_steps(
    generator, discriminator, optimizer_g, optimizer_d, noise, real, critic_steps
):
    optimizer_g.zero_grad()
    fake = generator(noise)
    for _ in range(critic_steps):
        optimizer_d.zero_grad()
        score_real, score_fake = discriminator(real), discriminator(fake)
        loss_d = F.softplus(-score_real).mean() + F.softplus(score_fake).mean()
        loss_d.backward(retain_graph=True)
        optimizer_d.step()

    F.softplus(-discriminator(fake)).mean().backward()
    optimizer_g.step()
