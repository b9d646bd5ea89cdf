"""Holders: their list, the page of one of them, statements."""
