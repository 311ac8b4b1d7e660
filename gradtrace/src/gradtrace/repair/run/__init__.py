"""Runs of the program, each in a process of its own, and what was observed of them."""
