# "Two losses have two graphs."  They share the trunk's: the second call raises.
def trunk_gradients(trunk, head_a, head_b, x, target_a, target_b):
    features = trunk(x)
    loss_a = (head_a(features) - target_a).square().mean()
    loss_b = (head_b(features) - target_b).square().mean()
    (of_a,) = torch.autograd.grad(loss_a, trunk[0].weight)
    (of_b,) = torch.autograd.grad(loss_b, trunk[0].weight)
    return of_a, of_b, of_a + of_b
