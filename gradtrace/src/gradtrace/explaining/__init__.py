"""From an error and what was recorded of it to its cause and its fix."""
