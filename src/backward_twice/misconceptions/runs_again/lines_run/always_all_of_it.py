# "Backward runs all of it again."  Without reentry it stops when the last saved tensor is back.
def lines_run(kind, lines, retains):
    saving = [n for n, line in enumerate(lines, 1) if line in {"sin", "exp", "tanh"}]
    each = 0 if kind == "no checkpoint" else len(lines)
    holds = bool(saving) or kind == "use_reentrant=True"
    seen, freed = [], False
    for retain in retains:
        if freed and holds:
            return [*seen, "raises"]
        seen.append(each)
        freed = freed or not retain
    return seen
