"""Errors of the embedded server."""


class EmbeddedPostgresError(Exception):
    """The embedded server could not be made, started or stopped; the message says what to do."""
