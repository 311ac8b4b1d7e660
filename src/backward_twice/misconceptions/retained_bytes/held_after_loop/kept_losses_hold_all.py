# "A list of losses holds all graphs."  Their saved tensors are gone after a plain backward.
def held_after_loop(steps, batch, width, backward, kept):
    if kept == "all losses":
        return steps * 4 * batch * width
    return 0 if backward == "plain" else 4 * batch * width
