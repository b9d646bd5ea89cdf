"""Django's PostgreSQL backend: health checks cost a system call, and the ledger's own check refuses old servers."""

import select
from typing import Any

from django.db.backends.postgresql import base


class DatabaseWrapper(base.DatabaseWrapper):
    """Sends the `SELECT 1` of a health check only if the server has sent something unexpected."""

    def close_if_health_check_failed(self) -> None:
        """Close a connection that the server has ended, at the first use in a request.

        A server that ends a session, or dies, leaves a message or the end of the stream on the socket. Without either, the query
        would find nothing, and cost every request CPU here and in the server, and a round trip. To check the socket is one system
        call.
        """
        is_due = self.health_check_enabled and not self.health_check_done  # type: ignore[attr-defined, has-type]
        if is_due and _is_silent(self.connection):
            self.health_check_done = True
            return
        super().close_if_health_check_failed()

    def check_database_version_supported(self) -> None:
        """Refuse no server: `ledger.database.checks` refuses old ones, and names the version that the ledger needs."""


def _is_silent(connection: Any) -> bool:
    """Return whether the connection is open and has nothing unread."""
    if connection is None or connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    return not poll.poll(0)
