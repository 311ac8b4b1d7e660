# "detach() makes a copy."  It shares the memory, which is counted twice here.
def held_bytes(reads, detached, calls, flags, widths, batch):
    whole, held = set(reads), []
    for network, retain in zip(calls, flags, strict=True):
        while not retain:
            whole.discard(network)
            if network in detached or reads[network] == "data":
                break
            network = reads[network]
        outputs = whole | {reads[name] for name in whole if name not in detached} - {"data"}
        copies = [reads[name] for name in whole if name in detached]
        held.append(sum(4 * batch * widths[name] for name in [*outputs, *copies]))
    return held
