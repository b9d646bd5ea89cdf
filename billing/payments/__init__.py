"""Money in: what is on sale, purchases of credits, and what returned money does to them."""
