"""The project's connection to PostgreSQL, and the rights of its role there."""
