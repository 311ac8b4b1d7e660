# Takes the gradients from .grad: the second backward adds the loss's gradient once more.
def flat_gradients(network, x, target, strength):
    loss = F.mse_loss(network(x), target)
    loss.backward(create_graph=True)
    steepness = sum(parameter.grad.square().sum() for parameter in network.parameters())
    (loss + strength * steepness).backward()
