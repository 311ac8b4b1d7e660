# Uses .data of the gradients, "so that nothing accumulates": nothing of the steepness is left.
def flat_gradients(network, x, target, strength):
    loss = F.mse_loss(network(x), target)
    gradients = torch.autograd.grad(loss, list(network.parameters()), create_graph=True)
    steepness = sum(gradient.data.square().sum() for gradient in gradients)
    (loss + strength * steepness).backward()
