# "Each tensor counts its own changes."  Views and detached tensors share their source's counter.
def count_versions(steps):
    versions, noted = {}, {}
    for step, name, *source in steps:
        if step == "product":
            noted[name] = source[0], versions[source[0]]
        elif step.startswith("add"):
            versions[name] += 1
        else:
            versions[name] = 0
    return versions, {name: versions[of] != count for name, (of, count) in noted.items()}
