# "Overwrite it with zeros first."  zero_() is recorded, too; and the older rows are gone.
def train(net, optimizer, inputs, width):
    window = torch.zeros(width, 2)
    for n, x in enumerate(inputs):
        window.zero_()
        window[n % width] = net(x)
        loss = (window.sum(0) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return window
