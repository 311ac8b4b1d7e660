# Counts x itself, which the program holds anyway, with what the graph holds.
def bytes_held(shape, operations):
    x = torch.full((2, 3), 0.5, requires_grad=True)
    return snapshot(apply(operations, x)).held.total * math.prod(shape) // 6
