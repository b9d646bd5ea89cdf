"""The queries, the shapes of responses and the examples of billing's calls."""
