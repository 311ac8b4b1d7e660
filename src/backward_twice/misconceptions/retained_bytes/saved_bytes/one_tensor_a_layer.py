# "One activation a layer", whatever function stands behind it.
def saved_bytes(batch, inputs, layers, squared, itemsize):
    return sum(width for width, _ in layers) * batch * itemsize
