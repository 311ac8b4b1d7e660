# "Forward again for every backward."  The batch norm's running mean moves each time.
def several_critic_steps(
    generator, discriminator, optimizer_g, optimizer_d, noise, real, critic_steps
):
    for _ in range(critic_steps):
        optimizer_d.zero_grad()
        score_real, score_fake = discriminator(real), discriminator(generator(noise).detach())
        loss_d = F.softplus(-score_real).mean() + F.softplus(score_fake).mean()
        loss_d.backward()
        optimizer_d.step()

    optimizer_g.zero_grad()
    F.softplus(-discriminator(generator(noise))).mean().backward()
    optimizer_g.step()
