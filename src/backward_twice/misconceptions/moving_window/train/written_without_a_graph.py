# "Write the values only."  Then nothing of the loss has a graph.
def train(net, optimizer, inputs, width):
    window = torch.zeros(width, 2)
    for n, x in enumerate(inputs):
        with torch.no_grad():
            window[n % width] = net(x)
        loss = (window.sum(0) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return window
