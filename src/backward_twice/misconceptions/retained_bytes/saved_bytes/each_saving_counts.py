# Adds up what every node saved: the output of a tanh, saved again by the next layer, counts twice.
def saved_bytes(batch, inputs, layers, squared, itemsize):
    values = 0
    for number, (width, function) in enumerate(layers, 1):
        savings = (function != "none") + (number < len(layers) or squared)
        values += savings * batch * width
    return values * itemsize
