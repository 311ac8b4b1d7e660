# "zero_grad() writes zeros."  Since PyTorch 2.0 it sets .grad to None and leaves the old tensor.
def kept_values(calls):
    box, kept = None, []
    for name, *number in calls:
        if name == "keep":
            kept.append(box)
        elif name.startswith("zero_grad"):
            if box:
                box[0] = 0
        elif box is None or name == "backward, create_graph=True":
            box = [number[0] + (box[0] if box else 0)]
        else:
            box[0] += number[0]
    return [box[0] if box else None for box in kept]
