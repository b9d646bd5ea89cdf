"""Looks VAT ids up again: those about which VIES gave no answer, and each a month after its answer; on any number of machines."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.db import Error, connection

from billing.models import Customer, VatCheck
from billing.orders.vat_lookups import VatAnswer, is_looked_up, keep, keep_new, requester_of
from billing.rating.vat import EU
from billing.tax_services import vies
from ledger import conf
from ledger.database.lock_names import CUSTOMER, VAT_CHECKS
from ledger.database.statements import fetch_rows
from ledger.database.transactions import locked_transaction
from ledger.errors import LedgerError, Misuse

log = logging.getLogger(__name__)

PER_MINUTE: Final = 20
"""How many VAT ids all machines together look up again in a minute: 28,800 a day."""
TIMEOUT_S: Final = 20
"""Some member states take 15 s."""
LEASE: Final = timedelta(minutes=5)
"""How long an id that a command has taken is left alone by the others; after that its process was killed."""

# Under the lock of VAT_CHECKS, so that each command sees what the others have taken.
TAKE = """
    UPDATE billing_vatcheck SET asked_at = clock_timestamp(), due_at = clock_timestamp() + %(lease)s
    WHERE id = (SELECT id FROM billing_vatcheck WHERE due_at <= clock_timestamp() ORDER BY due_at, customer_id LIMIT 1)
        AND %(most)s > (SELECT count(*) FROM billing_vatcheck WHERE asked_at > clock_timestamp() - interval '1 minute')
    RETURNING customer_id, tries
"""
# Customers who had their VAT id before the deployment began to look them up, or while it did not: as many as a minute can take,
# so that what waits for its turn is not overdue.
ADD_MISSING = """
    INSERT INTO billing_vatcheck (customer_id)
    SELECT c.id FROM billing_customer AS c
    WHERE c.vat_id <> '' AND left(c.vat_id, 2) = ANY(%(prefixes)s)
        AND NOT EXISTS (SELECT FROM billing_vatcheck AS v WHERE v.customer_id = c.id)
    ORDER BY c.id
    LIMIT (SELECT %(most)s - count(*)
        FROM (SELECT FROM billing_vatcheck WHERE due_at <= clock_timestamp() LIMIT %(most)s) AS waiting)
    ON CONFLICT (customer_id) DO NOTHING
"""
PREFIXES: Final = sorted({*EU, "EL"} - {"GR"})


@dataclass(slots=True)
class CheckedVatIds:
    """The counts of one run."""

    due: int = 0
    valid: int = 0
    invalid: int = 0
    unavailable: int = 0
    failed: int = 0


def check_due(*, dry_run: bool = False, stop: Callable[[], bool] = lambda: False) -> CheckedVatIds:
    """Look up VAT ids that are due, at most PER_MINUTE, outside of all transactions; nothing if the deployment looks none up.

    Args:
        dry_run: count what is due, ask nobody and write nothing.
        stop: called before each one; True ends the run.
    """
    checked_vat_ids = CheckedVatIds()
    if not conf.VIES_URL.value:
        return checked_vat_ids
    if dry_run:
        checked_vat_ids.due = fetch_rows(int, "SELECT count(*) FROM billing_vatcheck WHERE due_at <= clock_timestamp()", {})[0]
        return checked_vat_ids
    with connection.cursor() as cursor:
        cursor.execute(ADD_MISSING, {"prefixes": PREFIXES, "most": PER_MINUTE})
    for _ in range(PER_MINUTE):
        if stop() or (taken := _take()) is None:
            break
        checked_vat_ids.due += 1
        try:
            lookup = _check(*taken)
        except Misuse:
            raise
        except (LedgerError, Error) as error:
            # Somebody writes the customer, or the connection broke: it is due again after LEASE.
            checked_vat_ids.failed += 1
            log.warning("VAT id of customer %s: %s: %s", taken[0], type(error).__name__, error)
            continue
        if lookup is not None:
            name = lookup.outcome.value
            setattr(checked_vat_ids, name, getattr(checked_vat_ids, name) + 1)
            if lookup.error in vies.OF_THE_SERVICE:
                break
    return checked_vat_ids


def _take() -> tuple[int, int] | None:
    """Take the id that is due longest: the customer's id, and the tries before; None if nothing is due, or enough were asked."""
    with locked_transaction(VAT_CHECKS()):
        rows = fetch_rows(lambda *row: row, TAKE, {"lease": LEASE, "most": PER_MINUTE})
    return rows[0] if rows else None


def _check(customer_id: int, tries: int) -> VatAnswer | None:
    """Look an id up and keep what was said; None if the customer has none, or another one by now."""
    customer = Customer.objects.filter(pk=customer_id).first()
    if customer is None:
        VatCheck.objects.filter(customer_id=customer_id).delete()
        return None
    asked = is_looked_up(customer.vat_id)
    lookup = vies.look_up(customer.vat_id, requester=requester_of(customer.seller), timeout_s=TIMEOUT_S) if asked else None
    with locked_transaction(CUSTOMER(customer.ref)):
        customer.refresh_from_db()
        if lookup is None or customer.vat_id != lookup.vat_id:
            if not is_looked_up(customer.vat_id):
                keep_new(customer, None)
            return None
        keep(customer, lookup, tries=tries)
    return lookup
