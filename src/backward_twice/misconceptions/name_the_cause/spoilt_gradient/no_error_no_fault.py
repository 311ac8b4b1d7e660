# "It ran, so it is right."  No error does not mean no fault.
def spoilt_gradient(lines):
    return None
