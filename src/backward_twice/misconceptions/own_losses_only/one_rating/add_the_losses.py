# "Add the losses, then nothing is walked twice."  Each network gets the gradients of both.
def one_rating(actor, critic, actor_optimizer, critic_optimizer, states, rewards):
    actor_optimizer.zero_grad()
    critic_optimizer.zero_grad()

    rating = critic(torch.cat([states, actor(states)], dim=1))
    critic_loss, actor_loss = F.mse_loss(rating, rewards), -rating.mean()

    (critic_loss + actor_loss).backward()
    critic_optimizer.step()
    actor_optimizer.step()
