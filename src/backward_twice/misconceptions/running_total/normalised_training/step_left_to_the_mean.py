# "One backward after the loop", on the mean itself: the step it takes is another one.
def normalised_training(net, optimizer, batches, decay):
    running, history = None, []
    for x, target in batches:
        loss = (net(x) - target).square().mean()
        running = loss if running is None else decay * running.detach() + (1 - decay) * loss

        optimizer.zero_grad()
        running.backward()
        optimizer.step()
        history.append(running)
    return history
