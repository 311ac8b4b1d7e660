# "With retain_graph=True the gradients are retained", even over x.grad = None.
def times_added(lines):
    return [
        sum(line.startswith(("loss1.", "(loss1")) for line in lines),
        sum(
            {"loss2.b": 1, "(loss1 +": 1, "(loss1 -": -3}[start]
            for line in lines
            for start in ("loss2.b", "(loss1 +", "(loss1 -")
            if line.startswith(start)
        ),
    ]
