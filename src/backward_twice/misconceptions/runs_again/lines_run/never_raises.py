# "What can be computed again is never missing."  A plain backward frees the way to compute it.
def lines_run(kind, lines, retains):
    saving = [n for n, line in enumerate(lines, 1) if line in {"sin", "exp", "tanh"}]
    each = {
        "no checkpoint": 0,
        "use_reentrant=True": len(lines),
        "use_reentrant=False": saving[-1] if saving else 0,
    }[kind]
    holds = bool(saving) and kind == "no checkpoint"
    seen, freed = [], False
    for retain in retains:
        if freed and holds:
            return [*seen, "raises"]
        seen.append(each)
        freed = freed or not retain
    return seen
