"""A month of an account as a PDF for its holder: credits at its start, what came and went, credits at its end, and the proof."""
