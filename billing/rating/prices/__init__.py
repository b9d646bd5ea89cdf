"""Prices: the models and their costs, the reading of prices, and the units of a price that credits pay."""

# The import registers all models.
from billing.rating.prices import models

__all__ = ["models"]
