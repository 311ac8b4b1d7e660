# "zero_grad before every backward."  Then the step knows the last piece only.
def accumulate(net, optimizer, pieces, count):
    for x, target in pieces:
        optimizer.zero_grad()
        (F.mse_loss(net(x), target, reduction="sum") / count).backward()
    optimizer.step()
