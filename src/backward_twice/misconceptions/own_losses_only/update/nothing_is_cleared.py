# "inputs= is enough."  It adds to what was left in .grad from before.
def update(actor, critic, actor_optimizer, critic_optimizer, states, rewards):
    actions = actor(states)
    rated = critic(torch.cat([states, actions.detach()], dim=1))
    critic_loss = F.mse_loss(rated, rewards)
    actor_loss = -critic(torch.cat([states, actions], dim=1)).mean()

    critic_loss.backward(inputs=list(critic.parameters()))
    actor_loss.backward(inputs=list(actor.parameters()))
    critic_optimizer.step()
    actor_optimizer.step()
