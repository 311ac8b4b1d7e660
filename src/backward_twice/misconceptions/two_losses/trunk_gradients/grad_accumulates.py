# Reads .grad after each backward call: the second one holds both.
def trunk_gradients(trunk, head_a, head_b, x, target_a, target_b):
    features = trunk(x)
    loss_a = (head_a(features) - target_a).square().mean()
    loss_b = (head_b(features) - target_b).square().mean()
    loss_a.backward(retain_graph=True)
    of_a = trunk[0].weight.grad.clone()
    loss_b.backward()
    of_b = trunk[0].weight.grad.clone()
    return of_a, of_b, of_a + of_b
