# "Under no_grad nothing is counted."  Recording is off, counting is not.
def count_versions(steps):
    counter_of, counts, noted = {}, [], {}
    for step, name, *source in steps:
        if step in ("new", "data", "clone"):
            counter_of[name] = len(counts)
            counts.append(0)
        elif step in ("view", "detach"):
            counter_of[name] = counter_of[source[0]]
        elif step == "product":
            noted[name] = counter_of[source[0]], counts[counter_of[source[0]]]
        elif step == "add":
            counts[counter_of[name]] += 1
    versions = {name: counts[counter] for name, counter in counter_of.items()}
    return versions, {name: counts[counter] != count for name, (counter, count) in noted.items()}
