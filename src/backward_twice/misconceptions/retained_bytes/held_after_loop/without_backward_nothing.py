# "It is backward that fills the memory."  It frees; forward has saved.
def held_after_loop(steps, batch, width, backward, kept):
    if backward != "retained":
        return 0
    return (steps if kept == "all losses" else 1) * 4 * batch * width
