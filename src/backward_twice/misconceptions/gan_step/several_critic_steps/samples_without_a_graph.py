# "no_grad for the samples, then nothing is freed."  Then nothing reaches the generator either.
def several_critic_steps(
    generator, discriminator, optimizer_g, optimizer_d, noise, real, critic_steps
):
    with torch.no_grad():
        fake = generator(noise)
    for _ in range(critic_steps):
        optimizer_d.zero_grad()
        score_real, score_fake = discriminator(real), discriminator(fake)
        loss_d = F.softplus(-score_real).mean() + F.softplus(score_fake).mean()
        loss_d.backward()
        optimizer_d.step()

    optimizer_g.zero_grad()
    F.softplus(-discriminator(fake)).mean().backward()
    optimizer_g.step()
