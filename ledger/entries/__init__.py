"""Stores entries: as rows of the table, or in memory for a preview."""
