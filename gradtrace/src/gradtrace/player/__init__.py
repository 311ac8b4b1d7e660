"""Traces played on a page: the page, its payload and its front end."""
