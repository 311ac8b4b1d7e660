# "What backward does not refuse is right."  Nothing is refused here.
def wrong_gradients(function, inputs):
    wrong = []
    for position in range(len(inputs)):
        leaves = [x.clone().requires_grad_(i == position) for i, x in enumerate(inputs)]
        try:
            result = function(*leaves)
            if result.requires_grad:
                result.backward()
            wrong.append(False)
        except RuntimeError:
            wrong.append(True)
    return wrong
