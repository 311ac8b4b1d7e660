# "Compute everything anew."  Right gradients, but the batch norm has seen the noise twice.
def gan_step(generator, discriminator, optimizer_g, optimizer_d, noise, real):
    optimizer_d.zero_grad()
    score_real, score_fake = discriminator(real), discriminator(generator(noise))
    loss_d = F.softplus(-score_real).mean() + F.softplus(score_fake).mean()
    loss_d.backward()
    optimizer_d.step()

    optimizer_g.zero_grad()
    loss_g = F.softplus(-discriminator(generator(noise))).mean()
    loss_g.backward()
    optimizer_g.step()
