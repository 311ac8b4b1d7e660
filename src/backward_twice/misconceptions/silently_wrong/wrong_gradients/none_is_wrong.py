# "An input without a gradient is a mistake."  One that the function does not use has none, rightly.
def wrong_gradients(function, inputs):
    leaves = [x.clone().requires_grad_() for x in inputs]
    given = torch.autograd.grad(function(*leaves), leaves, allow_unused=True)
    wrong = []
    for position, gradient in enumerate(given):
        measured = torch.zeros_like(inputs[position])
        for i in range(len(measured)):
            moved = [[x.clone() for x in inputs] for _ in range(2)]
            moved[0][position][i] += 1e-5
            moved[1][position][i] -= 1e-5
            measured[i] = (function(*moved[0]) - function(*moved[1])) / 2e-5
        wrong.append(gradient is None or not torch.allclose(gradient, measured, rtol=1e-5))
    return wrong
