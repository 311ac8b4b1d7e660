# Counts the weights of the layers behind the first: saved they are, but the program holds them.
def saved_bytes(batch, inputs, layers, squared, itemsize):
    values, before = 0, None
    for number, (width, function) in enumerate(layers, 1):
        read_on = number < len(layers) or squared
        if function == "none":
            saved = read_on
        else:
            saved = 1 if function in ("tanh", "sigmoid", "relu") else 1 + read_on
        values += saved * batch * width
        if before is not None:
            values += before * width
        before = width
    return values * itemsize
