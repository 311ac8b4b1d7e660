# "The list keeps what .grad was."  It keeps the tensor, and each backward adds into it.
def record(parameter, losses):
    records = []
    for loss in losses:
        loss.backward()
        records.append(parameter.grad)
    return records
