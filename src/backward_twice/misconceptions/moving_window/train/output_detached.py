# "Store the output detached, and take the loss of it."  The older rows then count for nothing.
def train(net, optimizer, inputs, width):
    window = torch.zeros(width, 2)
    for n, x in enumerate(inputs):
        row = net(x)
        window[n % width] = row.detach()
        loss = (row - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return window
