"""What is there and what was billed: the subscription, when its items counted, its claims and allowances."""
