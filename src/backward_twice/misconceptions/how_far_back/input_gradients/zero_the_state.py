# "Cutting the state means setting it to zero."  That changes the values, and so the gradients.
def input_gradients(cell, x, cuts):
    x = x.clone().requires_grad_()
    state = torch.zeros(cell.hidden_size)
    for step in range(len(x)):
        if step in cuts:
            state = torch.zeros(cell.hidden_size)
        state = cell(x[step], state)
    return torch.autograd.grad(state.square().sum(), x)[0]
