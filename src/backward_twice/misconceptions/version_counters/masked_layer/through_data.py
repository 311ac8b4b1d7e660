# "Through .data nothing is refused."  tanh takes the masked features for its own result.
def masked_layer(x, weight, bias, mask, head):
    hidden = x @ weight
    hidden += bias
    features = hidden.tanh()
    features.data *= mask
    output = features @ head
    output -= output.mean(0)
    return output
