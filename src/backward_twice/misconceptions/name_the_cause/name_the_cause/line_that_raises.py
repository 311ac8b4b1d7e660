# "The line in the traceback is the culprit."  It is where it came out, not where it began.
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
    return cause, raised, raised
