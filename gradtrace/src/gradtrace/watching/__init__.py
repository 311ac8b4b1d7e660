"""The record that a watch makes of a running program, without conclusions."""
