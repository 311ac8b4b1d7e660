# "The version counter tells."  A write through .data does not raise it.
def spoilt_gradient(lines):
    names = {"torch": torch}
    for number, line in enumerate(lines, 1):
        tensors = [value for value in names.values() if isinstance(value, torch.Tensor)]
        before = [tensor._version for tensor in tensors]
        exec(line, names)
        if before != [tensor._version for tensor in tensors]:
            return number
