# "The first operation's tensors are missed first."  Backward begins at the other end.
def refuses(operations):
    for position, operation in enumerate(operations):
        if operation not in ("neg", "round", "clone", "flatten", "double"):
            return position
    return None
