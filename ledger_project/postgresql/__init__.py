"""Django's PostgreSQL backend, asking less often whether a connection is alive."""
