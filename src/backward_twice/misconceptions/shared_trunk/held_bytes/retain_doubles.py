# "Retaining doubles the memory, a call without it frees all."  Each loss keeps or frees its own.
def held_bytes(reads, detached, calls, flags, widths, batch):
    outputs = sum(4 * batch * width for width in widths.values())
    return [2 * outputs if retain else 0 for retain in flags]
