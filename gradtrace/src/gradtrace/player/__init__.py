"""Pages that play traces: the page, its data and its front end."""
