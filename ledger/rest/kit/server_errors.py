"""Errors of the server, beyond those that the ledger itself has."""

from ledger import errors
from ledger.rest.kit import request_errors


class DatabaseBusy(errors.Retryable):
    """A statement timed out, deadlocked or failed to serialize, three times in a row."""

    code = "database-busy"
    title = "The database is busy"


class DatabaseUnavailable(errors.Retryable):
    """The database cannot be reached, takes no more connections, or was lost before COMMIT."""

    code = "database-unavailable"
    title = "The database is not available"
    answer = errors.Answer(503, errors.AGAIN, retry_after_seconds=2)


class ServerUnavailable(errors.Retryable):
    """The proxy (deploy/nginx) could not connect to any web server, and has not sent the request."""

    code = "server-unavailable"
    title = "No web server is available"
    answer = errors.Answer(503, errors.AGAIN, retry_after_seconds=1)


class DiskFull(errors.Retryable):
    """The database server's disk is full."""

    code = "disk-full"
    title = "The database server's disk is full"
    answer = errors.Answer(503, errors.AGAIN, retry_after_seconds=60)


class Forbidden(request_errors.RequestError):
    """The server never does this, for any client."""

    code = "forbidden"
    title = "The request is not allowed"
    answer = errors.Answer(403, "The server does not allow this request.")


class InternalError(errors.LedgerError):
    """The server has a bug; the log has the details under the request's id."""

    code = "internal-error"
    title = "The server failed"
