# "clone() cures in-place errors."  Not after the change.
def masked_layer(x, weight, bias, mask, head):
    hidden = x @ weight
    hidden += bias
    features = hidden.tanh()
    features *= mask
    output = features.clone() @ head
    output -= output.mean(0)
    return output
