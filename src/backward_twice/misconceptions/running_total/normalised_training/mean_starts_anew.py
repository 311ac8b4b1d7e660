# "Compute it anew in each iteration."  Then it is no running mean any more.
def normalised_training(net, optimizer, batches, decay):
    running, history = None, []
    for x, target in batches:
        loss = (net(x) - target).square().mean()
        running = loss.item()

        optimizer.zero_grad()
        (loss / running).backward()
        optimizer.step()
        history.append(running)
    return history
