# "watch() is enough."  It sees no writes, so it has nothing to warn of.
def spoilt_gradient(lines):
    with watch() as watched:
        exec("\n".join(lines), {"torch": torch})
    return next((found.began_at.line for found in watched.findings), None)
