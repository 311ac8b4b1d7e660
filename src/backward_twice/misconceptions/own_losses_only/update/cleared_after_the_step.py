# "Clear right after the step."  What the actor's loss left is there in the next update.
def update(actor, critic, actor_optimizer, critic_optimizer, states, rewards):
    actions = actor(states)
    rated = critic(torch.cat([states, actions.detach()], dim=1))
    critic_loss = F.mse_loss(rated, rewards)
    actor_loss = -critic(torch.cat([states, actions], dim=1)).mean()

    critic_loss.backward()
    critic_optimizer.step()
    critic_optimizer.zero_grad()
    actor_loss.backward()
    actor_optimizer.step()
    actor_optimizer.zero_grad()
