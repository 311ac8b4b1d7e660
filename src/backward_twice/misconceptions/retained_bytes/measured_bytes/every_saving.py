# Adds up every tensor that is saved: weights and input as well, and shared memory twice.
def measured_bytes(network, x):
    seen = []

    def note(tensor):
        seen.append(tensor.nbytes)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        network(x).mean()
    return sum(seen)
