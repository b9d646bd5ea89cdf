"""Taxes: rules, documents and calls."""
