"""Calls about packs, purchases, what providers are asked for, and top-ups."""
