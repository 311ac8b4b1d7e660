"""Snapshots of a graph: what they hold, and their pictures."""
