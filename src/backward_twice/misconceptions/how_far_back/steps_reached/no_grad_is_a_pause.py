# "no_grad leaves out its own steps."  It cuts off those before it, too.
def steps_reached(chunks):
    reached, behind = [], 0
    for steps, kind in chunks:
        if kind in ("detach", "data", "zeros"):
            behind = 0
        behind += 0 if kind == "no_grad" else steps
        reached.append(0 if kind in ("no_grad", "detach output") else behind)
    return reached
