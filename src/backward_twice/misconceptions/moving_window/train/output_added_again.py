# "Store the output detached, and add it to the sum."  The window holds its values, too: twice.
def train(net, optimizer, inputs, width):
    window = torch.zeros(width, 2)
    for n, x in enumerate(inputs):
        row = net(x)
        window[n % width] = row.detach()
        loss = (window.sum(0) + row - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return window
