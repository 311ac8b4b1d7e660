# The exercise's own cell.
def apply(operations, x):
    for operation in operations:
        x = getattr(x, operation)()
    return x
