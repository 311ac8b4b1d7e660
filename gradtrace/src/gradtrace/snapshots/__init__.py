"""Snapshots of a graph: what they hold, their pictures, and what differs between two."""
