# "Backward always adds in place."  With create_graph=True the sum is a new tensor.
def kept_values(calls):
    box, kept = None, []
    for name, *number in calls:
        if name == "keep":
            kept.append(box)
        elif name == "zero_grad()":
            box = None
        elif name == "zero_grad, to zero":
            if box:
                box[0] = 0
        elif box is None:
            box = [number[0]]
        else:
            box[0] += number[0]
    return [box[0] if box else None for box in kept]
