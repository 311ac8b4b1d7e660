"""The autograd graph as plain data, and where in the user's program it comes from."""
