# "A new window in each step."  It has no past, and not the older rows either.
def train(net, optimizer, inputs, width):
    window = torch.zeros(width, 2)
    for n, x in enumerate(inputs):
        window = torch.zeros(width, 2)
        window[n % width] = net(x)
        loss = (window.sum(0) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return window
