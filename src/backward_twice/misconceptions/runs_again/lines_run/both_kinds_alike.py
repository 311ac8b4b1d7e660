# "Both kinds stop early."  The reentrant one runs all lines, and holds its input.
def lines_run(kind, lines, retains):
    saving = [n for n, line in enumerate(lines, 1) if line in {"sin", "exp", "tanh"}]
    each = 0 if kind == "no checkpoint" or not saving else saving[-1]
    holds = bool(saving)
    seen, freed = [], False
    for retain in retains:
        if freed and holds:
            return [*seen, "raises"]
        seen.append(each)
        freed = freed or not retain
    return seen
