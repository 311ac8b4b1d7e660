# Follows every reader back to the data, detached or not: flags for parts that are not reached.
def reached(network, reads):
    return {network} if reads[network] == "data" else {network} | reached(reads[network], reads)


def retain_flags(reads, detached, calls):
    parts = [reached(network, reads) for network in calls]
    return [any(part & later for later in parts[number + 1 :]) for number, part in enumerate(parts)]
