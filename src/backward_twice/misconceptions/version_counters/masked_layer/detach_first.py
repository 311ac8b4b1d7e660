# "Detach what you change."  It runs, and weight and bias learn nothing.
def masked_layer(x, weight, bias, mask, head):
    hidden = x @ weight
    hidden += bias
    features = hidden.tanh().detach()
    features *= mask
    output = features @ head
    output -= output.mean(0)
    return output
