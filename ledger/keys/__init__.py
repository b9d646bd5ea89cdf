"""API keys: making, finding, rotating and revoking them, what a key may do with other keys, and when a key was used."""
