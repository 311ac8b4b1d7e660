# "Whatever was changed in place is refused."  Only a change after the product saved it.
def count_versions(steps):
    counter_of, counts, noted = {}, [], {}
    for step, name, *source in steps:
        if step in ("new", "data", "clone"):
            counter_of[name] = len(counts)
            counts.append(0)
        elif step in ("view", "detach"):
            counter_of[name] = counter_of[source[0]]
        elif step == "product":
            noted[name] = counter_of[source[0]]
        else:
            counts[counter_of[name]] += 1
    versions = {name: counts[counter] for name, counter in counter_of.items()}
    return versions, {name: counts[counter] > 0 for name, counter in noted.items()}
