"""Entries of all holders: found by what they have, or followed in the order of the feed."""
