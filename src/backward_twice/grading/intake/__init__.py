"""Read what students hand in, in a process with limits, and trust none of it."""
