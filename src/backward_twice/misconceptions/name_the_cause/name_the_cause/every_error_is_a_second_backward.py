# "backward() failed, so the graph was freed."  Two other causes raise in backward as well.
def first_error(lines):
    names = {"torch": torch}
    for number, line in enumerate(lines, 1):
        try:
            exec(line, names)
        except RuntimeError as error:
            return number, str(error)
    return None, ""


def name_the_cause(lines):
    raised, _ = first_error(lines)
    if raised is None:
        return None
    earlier = [number for number in range(1, raised) if ".backward(" in lines[number - 1]]
    return "freed", raised, earlier[0] if earlier else raised
