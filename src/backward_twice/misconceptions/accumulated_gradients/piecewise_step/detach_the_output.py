# "Detach what is shared."  The trunk learns nothing.
def piecewise_step(trunk, head, optimizer, x, target, sizes):
    optimizer.zero_grad()
    features = trunk(x).detach()
    for part, wanted in zip(features.split(sizes), target.split(sizes), strict=True):
        loss = F.mse_loss(head(part), wanted) * len(part) / len(x)
        loss.backward()
    optimizer.step()
