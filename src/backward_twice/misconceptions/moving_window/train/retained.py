# "Retain the graph."  The older rows train as well, through weights that have changed since.
def train(net, optimizer, inputs, width):
    window = torch.zeros(width, 2)
    for n, x in enumerate(inputs):
        window[n % width] = net(x)
        loss = (window.sum(0) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
    return window
