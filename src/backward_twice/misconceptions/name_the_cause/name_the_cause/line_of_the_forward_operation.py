# Blames the line that made the tensor, as anomaly mode names it: not what happened to it since.
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
    name = lines[raised - 1].partition(".")[0]
    made = [number for number, text in enumerate(lines, 1) if text.startswith(f"{name} = ")]
    return cause, raised, made[-1]
