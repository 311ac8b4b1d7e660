# "What is cut off is the input."  The state still leads back to all inputs before it.
def input_gradients(cell, x, cuts):
    x = x.clone().requires_grad_()
    state = torch.zeros(cell.hidden_size)
    for step in range(len(x)):
        state = cell(x[step].detach() if step in cuts else x[step], state)
    return torch.autograd.grad(state.square().sum(), x)[0]
