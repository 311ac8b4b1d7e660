# "Under no_grad autograd does not look."  It does not record the change, but it counts it.
def masked_layer(x, weight, bias, mask, head):
    hidden = x @ weight
    hidden += bias
    features = hidden.tanh()
    with torch.no_grad():
        features *= mask
    output = features @ head
    output -= output.mean(0)
    return output
