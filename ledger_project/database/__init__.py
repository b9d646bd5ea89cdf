"""How the project connects to PostgreSQL, and the rights that its role has there."""
