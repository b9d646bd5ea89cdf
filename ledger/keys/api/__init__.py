"""The calls about API keys."""
