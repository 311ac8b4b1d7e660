"""Read submissions in a process with limits, without trusting their content."""
