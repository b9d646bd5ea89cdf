"""Asks providers for money, and gives it back: each request is on record before it is sent, and settled afterwards."""
