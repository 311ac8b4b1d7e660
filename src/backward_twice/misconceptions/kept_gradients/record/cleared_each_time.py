# "Clear it before each backward."  Then nothing adds up, and what was there is lost.
def record(parameter, losses):
    records = []
    for loss in losses:
        parameter.grad = None
        loss.backward()
        records.append(parameter.grad)
    return records
