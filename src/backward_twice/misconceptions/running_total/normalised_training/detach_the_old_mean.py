# The repair of a hidden state: it runs, but the scale keeps this loss's share.
def normalised_training(net, optimizer, batches, decay):
    running, history = None, []
    for x, target in batches:
        if running is not None:
            running = running.detach()
        loss = (net(x) - target).square().mean()
        running = loss if running is None else decay * running + (1 - decay) * loss

        optimizer.zero_grad()
        (loss / running).backward()
        optimizer.step()
        history.append(running)
    return history
