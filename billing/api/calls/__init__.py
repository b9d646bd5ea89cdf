"""The calls of billing, a module for each resource of its paths."""
