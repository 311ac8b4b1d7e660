# "The graph keeps the output of every operation."  It keeps what some gradient needs.
def saved_bytes(batch, inputs, layers, squared, itemsize):
    outputs = sum(width * (1 if function == "none" else 2) for width, function in layers)
    return outputs * batch * itemsize
