# "Each network has its own graph, so only the same loss again needs it."  A trunk is shared.
def retain_flags(reads, detached, calls):
    return [name in calls[number + 1 :] for number, name in enumerate(calls)]
