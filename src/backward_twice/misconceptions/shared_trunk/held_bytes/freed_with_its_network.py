# "What is freed is gone."  A head that was not freed still holds its trunk's output.
def held_bytes(reads, detached, calls, flags, widths, batch):
    whole, held = set(reads), []
    for network, retain in zip(calls, flags, strict=True):
        while not retain:
            whole.discard(network)
            if network in detached or reads[network] == "data":
                break
            network = reads[network]
        held.append(sum(4 * batch * widths[name] for name in whole))
    return held
