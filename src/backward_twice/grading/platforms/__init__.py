"""The formats of learning platforms: their exports, and the files that they import.

In the files for a platform, a student's text contains nothing that the platform would execute.
"""
