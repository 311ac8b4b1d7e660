"""Snapshots of a graph: their data and their pictures."""
