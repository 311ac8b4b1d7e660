# "A missing zero_grad() is the most common cause."  It does not touch the graph: the same error.
def normalised_training(net, optimizer, batches, decay):
    running, history = None, []
    for x, target in batches:
        loss = (net(x) - target).square().mean()
        running = loss if running is None else decay * running + (1 - decay) * loss

        optimizer.zero_grad()
        (loss / running).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        history.append(running)
    return history
