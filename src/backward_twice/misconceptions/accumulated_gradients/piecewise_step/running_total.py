# Goes backward from the running total each time: the first piece is added at every turn.
def piecewise_step(trunk, head, optimizer, x, target, sizes):
    optimizer.zero_grad()
    features, total = trunk(x), 0
    for part, wanted in zip(features.split(sizes), target.split(sizes), strict=True):
        total = total + F.mse_loss(head(part), wanted) * len(part) / len(x)
        total.backward(retain_graph=True)
    optimizer.step()
