# "The error says retain_graph=True."  It runs, and each network steps by both gradients.
def one_rating(actor, critic, actor_optimizer, critic_optimizer, states, rewards):
    actor_optimizer.zero_grad()
    critic_optimizer.zero_grad()

    rating = critic(torch.cat([states, actor(states)], dim=1))
    critic_loss, actor_loss = F.mse_loss(rating, rewards), -rating.mean()

    critic_loss.backward(retain_graph=True)
    actor_loss.backward()
    critic_optimizer.step()
    actor_optimizer.step()
