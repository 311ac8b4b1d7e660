# "The error says retain_graph=True, so retain everywhere."  The step in between changed a weight.
def one_update(trunk, head_a, head_b, optimizer, x, target_a, target_b):
    features = trunk(x)
    loss_a = (head_a(features) - target_a).square().mean()
    loss_b = (head_b(features) - target_b).square().mean()

    optimizer.zero_grad()
    loss_a.backward(retain_graph=True)
    optimizer.step()

    optimizer.zero_grad()
    loss_b.backward(retain_graph=True)
    optimizer.step()
