"""The calls of the shadow."""
