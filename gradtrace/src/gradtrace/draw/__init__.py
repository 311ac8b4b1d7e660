"""A graph folded, laid out and drawn as SVG, whether a trace or a snapshot showed it."""
