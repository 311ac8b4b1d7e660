# "Detach what is shared."  It runs, and the trunk learns nothing from the second loss.
def one_update(trunk, head_a, head_b, optimizer, x, target_a, target_b):
    features = trunk(x)
    loss_a = (head_a(features) - target_a).square().mean()
    loss_b = (head_b(features.detach()) - target_b).square().mean()

    optimizer.zero_grad()
    loss_a.backward()
    loss_b.backward()
    optimizer.step()
