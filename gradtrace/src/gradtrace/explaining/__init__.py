"""Explanations of errors and silent failures: the cause, the line where it began, and a fix."""
