"""Checks of who may use the admin."""

from django.db.backends.base.base import BaseDatabaseWrapper

from ledger_project.monitoring.findings import Finding, failed, ok
from ledger_project.operators.login.two_step import UnknownGroups, ensure_groups_exist


def two_step_login(connection: BaseDatabaseWrapper) -> Finding:
    """Whether the groups exist that must have two-step login."""
    try:
        ensure_groups_exist()
    except UnknownGroups as error:
        advice = "Correct LEDGER_TWO_STEP, or rename the group back: until then its members log in without a code."
        return failed("Two-step", f"{error}.", advice)
    return ok("Two-step", "Every group in LEDGER_TWO_STEP exists.")
