"""The state of a subscription and what is billed of it: its items, claims and allowances, and the cursor for the next run."""
