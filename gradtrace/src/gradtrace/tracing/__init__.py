"""A function run line by line, and the trace of its graph."""
