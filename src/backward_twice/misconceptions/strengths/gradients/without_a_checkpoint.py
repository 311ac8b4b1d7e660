# "Leave the checkpoint out."  Right gradients, but all activations are held at once.
def gradients(part, x, strengths):
    losses = [(part(x) * strength).sin().sum() for strength in strengths]
    return [torch.autograd.grad(loss, part[0].weight)[0] for loss in losses]
