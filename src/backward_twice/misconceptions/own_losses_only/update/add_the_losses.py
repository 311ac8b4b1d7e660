# "Add the losses."  The actor's loss trains the critic as well.
def update(actor, critic, actor_optimizer, critic_optimizer, states, rewards):
    actor_optimizer.zero_grad()
    critic_optimizer.zero_grad()

    actions = actor(states)
    rated = critic(torch.cat([states, actions.detach()], dim=1))
    critic_loss = F.mse_loss(rated, rewards)
    actor_loss = -critic(torch.cat([states, actions], dim=1)).mean()

    (critic_loss + actor_loss).backward()
    critic_optimizer.step()
    actor_optimizer.step()
