"""Costs: what was paid for the credits of a lot, and which share of it each entry moves."""
