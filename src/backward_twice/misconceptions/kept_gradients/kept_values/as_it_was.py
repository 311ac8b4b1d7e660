# "A reference holds what it held."  It holds a tensor, which others write into.
def kept_values(calls):
    now, kept = None, []
    for name, *number in calls:
        if name == "keep":
            kept.append(now)
        elif name == "zero_grad()":
            now = None
        elif name == "zero_grad, to zero":
            now = None if now is None else 0
        else:
            now = number[0] + (now or 0)
    return kept
