"""The part that needs a notebook, ``gradtrace[notebook]``: ``explore`` and the live player."""
