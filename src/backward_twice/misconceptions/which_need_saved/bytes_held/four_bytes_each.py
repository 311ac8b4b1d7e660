# "A value has four bytes."  After double() it has eight.
def bytes_held(shape, operations):
    x = torch.full((2, 3), 0.5, requires_grad=True)
    alike = [operation for operation in operations if operation != "double"]
    return snapshot(apply(alike, x)).held.activations * math.prod(shape) // 6
