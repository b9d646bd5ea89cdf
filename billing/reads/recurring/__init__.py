"""Recurring revenue (MRR): of a subscription now, of each customer at the end of a month, and its movement between two months."""
