"""Credits that are coming: what installed applications say about them when a request lacks credits."""
