# "The flag belongs in the call that raises."  It belongs in the call before.
def retain_flags(reads, detached, calls):
    parts = []
    for network in calls:
        found = {network}
        while network not in detached and reads[network] != "data":
            network = reads[network]
            found.add(network)
        parts.append(found)
    return [any(part & earlier for earlier in parts[:number]) for number, part in enumerate(parts)]
