"""The drivers need libraries that only the environment of ``make wild`` has."""

collect_ignore = ["drivers"]
