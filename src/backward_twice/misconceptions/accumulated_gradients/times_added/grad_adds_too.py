# "torch.autograd.grad is another name for backward."  It returns, and adds nothing.
def times_added(lines):
    a = b = 0
    for line in lines:
        if line == "x.grad = None":
            a = b = 0
        elif line.startswith("loss2"):
            b += 1
        else:
            a += 1
            b += 1 if "+ loss2" in line else -3 if "3 * loss2" in line else 0
    return [a, b]
