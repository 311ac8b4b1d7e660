# "retain_graph=True keeps what was computed again."  It keeps the way: each backward goes it.
def lines_run(kind, lines, retains):
    saving = [n for n, line in enumerate(lines, 1) if line in {"sin", "exp", "tanh"}]
    each = {
        "no checkpoint": 0,
        "use_reentrant=True": len(lines),
        "use_reentrant=False": saving[-1] if saving else 0,
    }[kind]
    holds = bool(saving) or kind == "use_reentrant=True"
    seen, freed = [], False
    for retain in retains:
        if freed and holds:
            return [*seen, "raises"]
        seen.append(0 if seen else each)
        freed = freed or not retain
    return seen
