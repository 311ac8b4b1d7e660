# "watch() is enough."  It sees no operations: nothing is known of the line that cut a graph off.
def name_the_cause(lines):
    try:
        with watch():
            exec("\n".join(lines), {"torch": torch})
    except RuntimeError as error:
        found = explain(error)
        return found.family, found.raised_at.line, found.began_at and found.began_at.line
