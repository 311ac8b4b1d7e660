# "The graph holds every intermediate result."  Products and sums saved none of theirs.
def held_bytes(habit, batch, hidden, steps, chunks, value_bytes):
    alive = {"detach": 1, "plain, keep losses": 0}.get(habit, chunks)
    return alive * steps * 4 * batch * hidden * value_bytes
