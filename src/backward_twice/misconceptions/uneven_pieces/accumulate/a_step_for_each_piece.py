# "Forward, backward, step."  Several small steps, each at other weights, are another update.
def accumulate(net, optimizer, pieces, count):
    for x, target in pieces:
        optimizer.zero_grad()
        (F.mse_loss(net(x), target, reduction="sum") / count).backward()
        optimizer.step()
