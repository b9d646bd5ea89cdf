"""Entries, refusals and batches: their search and lists, and a page for each with the related entries."""
