"""What needs a notebook: ``explore`` and the live player.  Install ``gradtrace[notebook]``."""
