# ".data is always wrong", so the first one is it.  Most of them write where nothing was saved.
def spoilt_gradient(lines):
    for number, line in enumerate(lines, 1):
        if ".data." in line:
            return number
