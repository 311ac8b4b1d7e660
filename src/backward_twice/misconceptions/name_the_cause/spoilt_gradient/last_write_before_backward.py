# "The write nearest to the last backward."  Near in the text says nothing of what was saved.
def spoilt_gradient(lines):
    return max(number for number, line in enumerate(lines, 1) if ".data." in line)
