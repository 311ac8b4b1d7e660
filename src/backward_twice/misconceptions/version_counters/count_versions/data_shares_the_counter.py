# ".data is an old name of detach()."  It has a counter of its own.
def count_versions(steps):
    counter_of, counts, noted = {}, [], {}
    for step, name, *source in steps:
        if step in ("new", "clone"):
            counter_of[name] = len(counts)
            counts.append(0)
        elif step in ("view", "detach", "data"):
            counter_of[name] = counter_of[source[0]]
        elif step == "product":
            noted[name] = counter_of[source[0]], counts[counter_of[source[0]]]
        else:
            counts[counter_of[name]] += 1
    versions = {name: counts[counter] for name, counter in counter_of.items()}
    return versions, {name: counts[counter] != count for name, (counter, count) in noted.items()}
