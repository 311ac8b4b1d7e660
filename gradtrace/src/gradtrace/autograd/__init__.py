"""The autograd graph as plain data, and the frames of the user's program, without conclusions."""
