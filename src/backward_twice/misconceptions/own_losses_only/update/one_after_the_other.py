# "The critic first, then the actor."  The actor is judged by a critic that has already learned.
def update(actor, critic, actor_optimizer, critic_optimizer, states, rewards):
    actions = actor(states)
    critic_optimizer.zero_grad()
    rated = critic(torch.cat([states, actions.detach()], dim=1))
    F.mse_loss(rated, rewards).backward()
    critic_optimizer.step()

    actor_optimizer.zero_grad()
    (-critic(torch.cat([states, actions], dim=1)).mean()).backward()
    actor_optimizer.step()
