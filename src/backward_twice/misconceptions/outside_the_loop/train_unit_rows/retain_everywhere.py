# "The error says retain_graph=True."  The old graph needs a direction that the step has changed.
def train_unit_rows(direction, scale, optimizer, batches):
    weight = direction / direction.norm(dim=1, keepdim=True)
    for x, target in batches:
        loss = (scale * (x @ weight.T) - target).square().mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
    return direction / direction.norm(dim=1, keepdim=True)
