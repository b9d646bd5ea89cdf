"""Packs of credits, purchases and their returns, what providers of payments are asked for, and top-ups."""
