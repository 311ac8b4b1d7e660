"""The autograd graph as plain data, and the frames of the user's program.

Nothing in here decides or draws anything; it depends on PyTorch only.
"""
