"""All checks of a deployment, in the order in which `manage.py doctor` shows them."""

from collections.abc import Callable, Iterator

from django.db import Error, connection
from django.db.backends.base.base import BaseDatabaseWrapper

from ledger import conf
from ledger.database import checks
from ledger.errors import LedgerError
from ledger_project.monitoring import node_checks, schema_checks, server_checks, work_checks
from ledger_project.monitoring.findings import CheckResult, CheckState, failed, ok, warning
from ledger_project.operators.two_step import UnknownGroups, ensure_groups_exist


def two_step_login(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check that the groups exist whose members need two-step login."""
    try:
        ensure_groups_exist()
    except UnknownGroups as error:
        advice = "Correct LEDGER_TWO_STEP, or rename the group back: until then its members log in without a code."
        return failed("Two-step", f"{error}.", advice)
    return ok("Two-step", "Every group in LEDGER_TWO_STEP exists.")


Check = Callable[[BaseDatabaseWrapper], CheckResult]

CHECKS: tuple[Check, ...] = (
    server_checks.versions,
    schema_checks.migrations,
    schema_checks.schema,
    server_checks.writes,
    server_checks.isolation,
    server_checks.durability,
    server_checks.timeouts,
    server_checks.locks,
    schema_checks.role,
    schema_checks.rights,
    schema_checks.triggers,
    two_step_login,
    server_checks.connections,
    server_checks.lock_table,
    server_checks.clock,
    server_checks.server_log,
    work_checks.timetable,
    work_checks.audit,
    work_checks.anchor,
    work_checks.partitions,
    work_checks.suspended,
    work_checks.e_invoices,
    work_checks.vat_ids,
    work_checks.signals,
    work_checks.recurring_grants,
    work_checks.holder_clocks,
    work_checks.disk,
)
UNCHECKED = (Error, LedgerError, OSError, ValueError)
NODE_IS_AWAY = "08006"
"""The SQLSTATE of a statement that a cluster sends to a node which does not answer; the check of that node fails."""


def examine() -> Iterator[CheckResult]:
    """Yield the result of each check; only that of the connection if the database does not answer. Writes nothing."""
    # An unsafe database is a result to show, so the connection must not refuse it.
    checks.leave_unverified(connection.alias)
    try:
        connection.ensure_connection()
    except Error as error:
        text = f"The database does not answer: {' '.join(str(error).split())}"
        yield failed(
            "Database", text, "Start it (`make run` starts the embedded one), or correct DATABASE_URL. No other check was made."
        )
        return
    place = connection.settings_dict
    yield ok("Database", f"{place['NAME']} on {place['HOST'] or 'this machine'} answers.")
    yield from map(_finding, CHECKS)
    yield from _of_nodes()


def _of_nodes() -> Iterator[CheckResult]:
    try:
        yield from node_checks.nodes(connection)
    except UNCHECKED as error:
        yield _unchecked_result("Nodes", error)


def _finding(check: Check) -> CheckResult:
    try:
        return check(connection)
    except UNCHECKED as error:
        return _unchecked_result(check.__name__.replace("_", " ").capitalize(), error)


def _unchecked_result(name: str, error: Exception) -> CheckResult:
    is_node_away = conf.DISTRIBUTED.value and getattr(error.__cause__, "sqlstate", None) == NODE_IS_AWAY
    result = warning if is_node_away else failed
    return result(name, f"This could not be checked: {' '.join(str(error).split())}", "See the other findings first.")


def worst(findings: list[CheckResult]) -> CheckState:
    """Return the worst state among them."""
    order = list(CheckState)
    return max((finding.state for finding in findings), key=order.index, default=CheckState.OK)
