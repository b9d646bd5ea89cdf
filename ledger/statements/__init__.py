"""What a holder gets to see of a month on paper: credits at its start, what came and went, credits at its end, and the proof."""
