# "The error says retain_graph=True."  Then the discriminator's step has changed a weight in place.
def gan_step(generator, discriminator, optimizer_g, optimizer_d, noise, real):
    optimizer_g.zero_grad()
    optimizer_d.zero_grad()

    fake = generator(noise)
    score_real, score_fake = discriminator(real), discriminator(fake)
    loss_d = F.softplus(-score_real).mean() + F.softplus(score_fake).mean()
    loss_g = F.softplus(-score_fake).mean()

    loss_d.backward(retain_graph=True)
    optimizer_d.step()

    loss_g.backward()
    optimizer_g.step()
