"""GET /metrics: the counts of this web server's processes, and numbers from the database, as text for Prometheus. ADR 0037."""

import secrets
from collections.abc import Sequence

from django.conf import settings
from django.db import connection
from django.http import HttpRequest
from drf_spectacular.utils import extend_schema
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from ledger.database.queues import Queue
from ledger.rest.kit.authentication import secret_of
from ledger.rest.kit.endpoint import Endpoint, QueuedRequest
from ledger.rest.kit.rendering import Response
from ledger.rest.kit.request_errors import NotFound, Unauthenticated
from ledger.telemetry.metrics import all_processes, write_counts
from ledger_project.monitoring.gauges import DatabaseGauges

SCRAPES_AT_ONCE = 16
"""Scrapes that arrive while another is executed share the next one."""

_gauges = DatabaseGauges()


def page() -> bytes:
    """Return all metrics as text."""
    registry = all_processes()
    registry.register(_gauges)
    return generate_latest(registry)


def _answer(requests: Sequence[None]) -> list[bytes]:
    try:
        return [page()] * len(requests)
    finally:
        # The next scrape is some seconds away: give the connection back to the server until then.
        if not connection.in_atomic_block:
            connection.close()


_scrapes = Queue("ledger-metrics", _answer, most=lambda: SCRAPES_AT_ONCE, limit=SCRAPES_AT_ONCE, is_quick=False)


class Metrics(Endpoint):
    """Return the metrics. They reveal amounts of business, so the page requires a token; without a token in the settings it is
    404.

    The token is a setting, not an API key: the page must work while the database, which has the keys, is away.
    """

    is_public = True
    is_probe = True
    in_loop = frozenset({"get"})
    served = "text/plain"

    @extend_schema(exclude=True)
    def get(self, request: HttpRequest) -> QueuedRequest:
        """Collect the metrics in a separate thread."""
        if not settings.METRICS_TOKEN:
            raise NotFound
        if not secrets.compare_digest(secret_of(request).encode(), settings.METRICS_TOKEN.encode()):
            raise Unauthenticated
        write_counts()
        return QueuedRequest(_scrapes, None, _response)


def _response(text: bytes) -> Response:
    return Response(text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4, "Cache-Control": "no-store"})
