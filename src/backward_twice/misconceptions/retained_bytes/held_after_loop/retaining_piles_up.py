# "retain_graph=True fills the memory, step by step."  Not when the old loss goes.
def held_after_loop(steps, batch, width, backward, kept):
    return (steps if backward == "retained" else 0) * 4 * batch * width
