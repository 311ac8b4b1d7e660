# "Only results are freed, inputs are still there."  The node has let go of either.
def refuses(operations):
    for position in reversed(range(len(operations))):
        if operations[position] in ("exp", "sigmoid", "tanh", "relu", "sqrt"):
            return position
    return None
