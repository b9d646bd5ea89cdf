"""Probes: whether this process is alive, and whether it can serve. For load balancers and orchestrators; no key is needed."""

import logging
import time
from dataclasses import dataclass
from typing import Annotated

from django.db import Error, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest
from rest_framework import serializers

from ledger.database import checks
from ledger.errors import LedgerError, UnsafeDatabase
from ledger.records import Record
from ledger.rest.kit.endpoint import Endpoint
from ledger.rest.kit.queries import QueryBoolean, read_query
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.request_errors import FieldError, InvalidRequest
from ledger.rest.kit.schema import ResponseBody, operation

log = logging.getLogger(__name__)

SELF_TEST_EVERY_SECONDS = 30.0
RETRY_AFTER_SECONDS = 2

_passed_at: dict[str, float] = {}
"""When the migrations and the locks last passed. Migrations stay applied; a failover can change the locks."""


class HealthSerializer(serializers.Serializer):
    """The response of a live process."""

    status = serializers.ChoiceField(choices=["ok"], help_text="Always ok.")


class ReadinessSerializer(serializers.Serializer):
    """Whether the process can serve requests."""

    status = serializers.ChoiceField(choices=["ready", "not-ready"], help_text="`ready` if every check is ok.")
    checks = serializers.DictField(
        child=serializers.CharField(), help_text="`database`, `migrations`, `locks`, `writes`: ok, or why not."
    )


@dataclass(frozen=True, kw_only=True)
class ReadinessQuery(Record):
    """The query of the readiness probe."""

    reads_only: Annotated[
        bool,
        QueryBoolean("Ready even if the server takes no writes, such as a standby: for a load balancer that sends only reads."),
    ] = False


class Health(Endpoint):
    """Reports that the process is alive."""

    is_public = True
    is_probe = True
    in_loop = frozenset({"get"})

    @operation(
        "health",
        "Is the process alive?",
        tag="Operation",
        scope="",
        responses={200: ResponseBody(HealthSerializer, {"status": "ok"}, "The process is alive.")},
    )
    def get(self, request: HttpRequest) -> Response:
        """Responds, and checks nothing."""
        return json_response({"status": "ok"})


READY = {"status": "ready", "checks": {"database": "ok", "migrations": "ok", "locks": "ok", "writes": "ok"}}
NOT_LOOKED_AT = {"database": "unreachable", "migrations": "unknown", "locks": "unknown", "writes": "unknown"}
NOT_READY = {"status": "not-ready", "checks": NOT_LOOKED_AT}


class Readiness(Endpoint):
    """Reports whether the process can serve."""

    is_public = True

    @operation(
        "readiness",
        "Can requests be served?",
        "Checks the database, that all migrations are applied, that one connection does not get a lock that another "
        "holds, and that the server takes writes. If the server has no second connection left, the last result of the "
        "lock test counts. With `reads_only=true`, a server that takes no writes, such as a standby, is ready too.",
        tag="Operation",
        scope="",
        query=ReadinessQuery,
        responses={
            200: ResponseBody(ReadinessSerializer, READY, "Requests can be served."),
            503: ResponseBody(ReadinessSerializer, NOT_READY, "Requests cannot be served."),
        },
        problems=[InvalidRequest([FieldError("/reads_only", "not-a-boolean", "This must be true or false.")])],
    )
    def get(self, request: HttpRequest) -> Response:
        """Run the checks that are due."""
        reads_only = read_query(ReadinessQuery, request)["reads_only"]
        found = readiness()
        if all(result == "ok" for check, result in found.items() if not (reads_only and check == "writes")):
            return json_response({"status": "ready", "checks": found})
        return json_response(
            {"status": "not-ready", "checks": found}, status=503, headers={"Retry-After": str(RETRY_AFTER_SECONDS)}
        )


def readiness() -> dict[str, str]:
    """Return `ok` or the fault, for the database, the migrations, the locks and writes. Never raises; writes nothing."""
    found = dict(NOT_LOOKED_AT)
    try:
        refusal = checks.refusal_of_writes(connection)
        found["database"] = "ok"
        found["writes"] = refusal or "ok"
        found["migrations"] = _migrations()
        found["locks"] = _locks()
    except UnsafeDatabase as unsafe:
        log.warning("not ready: %s", unsafe)
        found["database"] = f"refused: {unsafe}"
    except (Error, LedgerError) as error:
        log.warning("not ready: %s", error)
    return found


def forget_checks() -> None:
    """Make the next readiness request check everything again."""
    _passed_at.clear()


def _migrations() -> str:
    if "migrations" not in _passed_at:
        executor = MigrationExecutor(connection)
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            return "unapplied"
        _passed_at["migrations"] = time.monotonic()
    return "ok"


def _locks() -> str:
    """Test the locks when that is due. Without a second connection, the last result counts.

    Serving takes one connection per thread, and this process proved the locks before it kept its first: when all connections of
    the server are in use, the processes that use them can still serve.
    """
    if time.monotonic() - _passed_at.get("locks", float("-inf")) > SELF_TEST_EVERY_SECONDS:
        try:
            checks.verify_database(connection)
        except checks.NoSecondConnection as error:
            log.info("the locks were not tested: %s", error)
            return "ok"
        _passed_at["locks"] = time.monotonic()
    return "ok"
