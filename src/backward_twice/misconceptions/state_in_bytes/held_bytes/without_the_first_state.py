# Counts the states that were computed, and forgets the one that the first step began with.
def held_bytes(habit, batch, hidden, steps, chunks, value_bytes):
    alive = {"detach": 1, "plain, keep losses": 0}.get(habit, chunks)
    return alive * steps * batch * hidden * value_bytes
