"""Runs of the program, each in its own process, and the observations of each run."""
