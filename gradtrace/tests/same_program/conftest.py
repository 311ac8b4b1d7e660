"""Programs to run, not modules to look for doctests in."""

collect_ignore_glob = ["*"]
