# "eval() records no graph."  It changes dropout and batch norm; every graph is still recorded.
def train(net, optimizer, batches, validation, decay):
    x_val, y_val = validation
    features = []
    net[0].register_forward_hook(lambda module, args, output: features.append(output))
    history, average = [], None
    for x, target in batches:
        loss = F.mse_loss(net(x), target) + 0.01 * features[-1].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        net.eval()
        val_loss = F.mse_loss(net(x_val), y_val)
        net.train()
        average = val_loss if average is None else decay * average + (1 - decay) * val_loss
        history.append(val_loss)
    return history, average
