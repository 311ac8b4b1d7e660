# "The mean, divided by count."  mse_loss has divided by the rows of the piece: twice is too much.
def accumulate(net, optimizer, pieces, count):
    optimizer.zero_grad()
    for x, target in pieces:
        (F.mse_loss(net(x), target) / count).backward()
    optimizer.step()
