"""The calls about the books."""
