# "It is always the backward before."  Of writes and cuts that is not true, nor of two losses.
def first_error(lines):
    names = {"torch": torch}
    for number, line in enumerate(lines, 1):
        try:
            exec(line, names)
        except RuntimeError as error:
            return number, str(error)
    return None, ""


def name_the_cause(lines):
    raised, message = first_error(lines)
    if raised is None:
        return None
    cause = "no_graph" if "grad_fn" in message else "freed"
    if "inplace" in message:
        cause = "modified"
    earlier = [number for number in range(1, raised) if ".backward(" in lines[number - 1]]
    return cause, raised, earlier[-1] if earlier else raised
