# "The output was detached, so the state is."  The state went on as it was.
def steps_reached(chunks):
    reached, behind = [], 0
    for steps, kind in chunks:
        if kind in ("detach", "data", "zeros"):
            behind = 0
        behind = 0 if kind in ("no_grad", "detach output") else behind + steps
        reached.append(behind)
    return reached
