"""What clients are told while connections to PostgreSQL break."""
