# "detach() makes a copy."  It makes another tensor with the same memory.
def record(parameter, losses):
    records = []
    for loss in losses:
        loss.backward()
        records.append(parameter.grad.detach())
    return records
