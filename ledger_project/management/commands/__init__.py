"""Commands that run the whole project."""
