"""From values, or from exceptions, to the bytes of a response."""
