# "What is detached is free."  A loss in a list keeps its graph all the same.
def held_bytes(habit, batch, hidden, steps, chunks, value_bytes):
    states = {"carry": chunks * steps + 1, "plain, keep losses": 0}.get(habit, steps + 1)
    return states * batch * hidden * value_bytes
