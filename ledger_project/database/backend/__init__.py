"""Django's PostgreSQL backend with cheaper health checks of connections."""
