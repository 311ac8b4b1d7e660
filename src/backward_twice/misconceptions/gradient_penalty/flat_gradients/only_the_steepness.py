# "The first call was the loss's backward already."  It returned its gradient, and kept none.
def flat_gradients(network, x, target, strength):
    loss = F.mse_loss(network(x), target)
    gradients = torch.autograd.grad(loss, list(network.parameters()), create_graph=True)
    steepness = sum(gradient.square().sum() for gradient in gradients)
    (strength * steepness).backward()
