# "A clone is a new tensor, so its graph is new."  The copy is recorded, and the gradient passes.
def steps_reached(chunks):
    reached, behind = [], 0
    for steps, kind in chunks:
        if kind in ("clone", "detach", "data", "zeros"):
            behind = 0
        behind = 0 if kind == "no_grad" else behind + steps
        reached.append(0 if kind == "detach output" else behind)
    return reached
