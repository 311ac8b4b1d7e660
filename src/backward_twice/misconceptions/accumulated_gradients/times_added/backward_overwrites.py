# "backward() writes the gradient into .grad."  It adds to what is there.
def times_added(lines):
    adds = {
        "loss1.backward(retain_graph=True)": [1, 0],
        "loss2.backward(retain_graph=True)": [0, 1],
        "(loss1 + loss2).backward(retain_graph=True)": [1, 1],
        "(loss1 - 3 * loss2).backward(retain_graph=True)": [1, -3],
        "x.grad = None": [0, 0],
    }
    return [adds[line] for line in lines if line in adds][-1]
