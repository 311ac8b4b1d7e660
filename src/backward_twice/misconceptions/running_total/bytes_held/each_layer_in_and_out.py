# "Every layer keeps its input and its output."  Counts twice the tensor that two operations share.
def bytes_held(batch_sizes, widths):
    a_row = 4 * (sum(widths[:-1]) + sum(widths[1:-1]) + sum(widths[1:]))
    return a_row * sum(batch_sizes), a_row * batch_sizes[-1]
