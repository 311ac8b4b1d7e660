# "The error says retain_graph=True."  Then the old graph meets weights that the step has changed.
def normalised_training(net, optimizer, batches, decay):
    running, history = None, []
    for x, target in batches:
        loss = (net(x) - target).square().mean()
        running = loss if running is None else decay * running + (1 - decay) * loss

        optimizer.zero_grad()
        (loss / running).backward(retain_graph=True)
        optimizer.step()
        history.append(running)
    return history
