# "Detach the output and ask for its gradient again."  No error, and nothing is trained.
def normalised_training(net, optimizer, batches, decay):
    running, history = None, []
    for x, target in batches:
        loss = (net(x) - target).square().mean()
        running = loss if running is None else decay * running + (1 - decay) * loss

        optimizer.zero_grad()
        (loss / running).detach().requires_grad_().backward()
        optimizer.step()
        history.append(running)
    return history
