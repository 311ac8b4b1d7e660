# Finite differences in single precision, with a tiny step: what they measure is rounding.
def wrong_gradients(function, inputs):
    inputs = [x.float() for x in inputs]
    leaves = [x.clone().requires_grad_() for x in inputs]
    given = torch.autograd.grad(function(*leaves), leaves, allow_unused=True)
    wrong = []
    for position, gradient in enumerate(given):
        measured = torch.zeros_like(inputs[position])
        for i in range(len(measured)):
            moved = [[x.clone() for x in inputs] for _ in range(2)]
            moved[0][position][i] += 1e-6
            moved[1][position][i] -= 1e-6
            measured[i] = (function(*moved[0]) - function(*moved[1])) / 2e-6
        gradient = torch.zeros_like(measured) if gradient is None else gradient
        wrong.append(not torch.allclose(gradient, measured, rtol=1e-5))
    return wrong
