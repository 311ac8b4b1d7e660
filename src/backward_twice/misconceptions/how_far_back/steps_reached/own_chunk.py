# "Each loss trains its own chunk."  Only if something cuts the state.
def steps_reached(chunks):
    return [0 if kind in ("no_grad", "detach output") else steps for steps, kind in chunks]
