# "Add the losses, one backward."  The first layer's input has been written over by then, and all graphs were held.
def accumulate(net, optimizer, pieces, count):
    optimizer.zero_grad()
    total = 0
    for x, target in pieces:
        total = total + F.mse_loss(net(x), target, reduction="sum")
    (total / count).backward()
    optimizer.step()
