# "retain_graph=True, so that the graph is there."  The steepness has no graph: a constant.
def flat_gradients(network, x, target, strength):
    loss = F.mse_loss(network(x), target)
    gradients = torch.autograd.grad(loss, list(network.parameters()), retain_graph=True)
    steepness = sum(gradient.square().sum() for gradient in gradients)
    (loss + strength * steepness).backward()
