# "The graph is gone after backward", so the last operation refuses.  It may have saved nothing.
def refuses(operations):
    return len(operations) - 1
