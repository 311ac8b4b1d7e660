"""What a watch records of a running program; it decides nothing."""
