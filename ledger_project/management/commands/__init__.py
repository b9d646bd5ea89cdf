"""prepare_database and serve."""
