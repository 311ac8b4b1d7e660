# "retain_graph=True doubles the memory."  It keeps what something still leads to.
def held_bytes(habit, batch, hidden, steps, chunks, value_bytes):
    one = (steps + 1) * batch * hidden * value_bytes
    return one if habit == "plain, keep losses" else 2 * one
