# "A call without the flag frees the graph", the whole of it, whatever its loss reaches.
def held_bytes(reads, detached, calls, flags, widths, batch):
    held, whole = [], sum(4 * batch * width for width in widths.values())
    for retain in flags:
        whole = whole if retain else 0
        held.append(whole)
    return held
