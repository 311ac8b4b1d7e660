"""From an error and its record to its cause and its fix."""
