"""What finance reads of a month: payments and usage in credits, and taxes."""
