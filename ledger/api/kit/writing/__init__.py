"""From values, or from what was raised, to the bytes of a response."""
