# "Rate anew for the second loss."  Right gradients; the critic's batch norm saw the batch twice.
def one_rating(actor, critic, actor_optimizer, critic_optimizer, states, rewards):
    actor_optimizer.zero_grad()
    critic_optimizer.zero_grad()

    actions = actor(states)
    rated = critic(torch.cat([states, actions.detach()], dim=1))
    F.mse_loss(rated, rewards).backward(inputs=list(critic.parameters()))
    rating = critic(torch.cat([states, actions], dim=1))
    (-rating.mean()).backward(inputs=list(actor.parameters()))
    critic_optimizer.step()
    actor_optimizer.step()
