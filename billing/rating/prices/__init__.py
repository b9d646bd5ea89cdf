"""Prices: the models and their costs, the reading of prices, and the units of a price that credits pay."""
