# "Forward again and step for each piece."  Runs, at weights that have already moved.
def piecewise_step(trunk, head, optimizer, x, target, sizes):
    for part, wanted in zip(x.split(sizes), target.split(sizes), strict=True):
        optimizer.zero_grad()
        loss = F.mse_loss(head(trunk(part)), wanted) * len(part) / len(x)
        loss.backward()
        optimizer.step()
