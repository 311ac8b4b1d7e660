# "Retain everywhere, then nothing raises."  Nothing raises, and most of it is for nothing.
def retain_flags(reads, detached, calls):
    return [True] * len(calls)
