# "Several losses: retain in every call but the last."  Many calls share nothing with a later one.
def retain_flags(reads, detached, calls):
    return [True] * (len(calls) - 1) + [False]
