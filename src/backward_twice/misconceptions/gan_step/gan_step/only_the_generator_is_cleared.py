# Detached as it should be, but what loss_g left in the discriminator joins its next step.
def gan_step(generator, discriminator, optimizer_g, optimizer_d, noise, real):
    fake = generator(noise)
    score_real, score_fake = discriminator(real), discriminator(fake.detach())
    loss_d = F.softplus(-score_real).mean() + F.softplus(score_fake).mean()
    loss_d.backward()
    optimizer_d.step()

    optimizer_g.zero_grad()
    loss_g = F.softplus(-discriminator(fake)).mean()
    loss_g.backward()
    optimizer_g.step()
