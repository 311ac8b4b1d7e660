# "Then set requires_grad."  backward() runs, and ends at the window: the network gets no gradient.
def train(net, optimizer, inputs, width):
    window = torch.zeros(width, 2)
    for n, x in enumerate(inputs):
        window = window.detach()
        window[n % width] = net(x).detach()
        window.requires_grad_()
        loss = (window.sum(0) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return window.detach()
