"""Entries, refusals among them, and batches: searched, listed, and each on a page with what belongs to it."""
