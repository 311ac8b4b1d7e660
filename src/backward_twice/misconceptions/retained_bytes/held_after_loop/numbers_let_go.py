# "loss.item() lets the graph go."  The variable loss still has the last one.
def held_after_loop(steps, batch, width, backward, kept):
    if backward == "plain" or kept == "all numbers":
        return 0
    return (steps if kept == "all losses" else 1) * 4 * batch * width
