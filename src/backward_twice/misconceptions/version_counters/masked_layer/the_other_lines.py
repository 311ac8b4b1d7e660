# Replaces the in-place lines that do no harm, and leaves the one that does.
def masked_layer(x, weight, bias, mask, head):
    hidden = x @ weight + bias
    features = hidden.tanh()
    features *= mask
    output = features @ head
    return output - output.mean(0)
