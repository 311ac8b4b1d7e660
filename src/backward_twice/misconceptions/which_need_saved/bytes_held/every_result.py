# "The graph holds the result of every operation."  It holds what was saved.
def bytes_held(shape, operations):
    width, held = 4, 0
    for operation in operations:
        if operation == "double":
            width = 8
        held += width
    return math.prod(shape) * held
