# "Detach the generator's output."  For both losses: the generator learns nothing.
def gan_step(generator, discriminator, optimizer_g, optimizer_d, noise, real):
    optimizer_g.zero_grad()
    optimizer_d.zero_grad()

    fake = generator(noise).detach()
    score_real, score_fake = discriminator(real), discriminator(fake)
    loss_d = F.softplus(-score_real).mean() + F.softplus(score_fake).mean()
    loss_d.backward()
    optimizer_d.step()

    loss_g = F.softplus(-discriminator(fake)).mean()
    loss_g.backward()
    optimizer_g.step()
