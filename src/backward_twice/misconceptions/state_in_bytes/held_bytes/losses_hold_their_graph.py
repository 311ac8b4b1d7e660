# "A loss in a list keeps its graph's bytes."  Not after a plain backward, which has freed them.
def held_bytes(habit, batch, hidden, steps, chunks, value_bytes):
    states = steps + 1 if habit == "detach" else chunks * steps + 1
    return states * batch * hidden * value_bytes
