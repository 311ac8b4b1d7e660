# "torch.autograd.grad gives the same."  It gives each gradient alone, and leaves .grad as it was.
def record(parameter, losses):
    return [torch.autograd.grad(loss, parameter)[0] for loss in losses]
