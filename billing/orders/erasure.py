"""Erases the personal data of a customer: in all tables about people, and in stored responses. See Note [Personal columns].

Documents keep their buyer, because tax law requires that. Entries have no name. docs/how-to/operations/security.md lists what
stays, and why.
"""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from django.db import connection
from django.db.models import Q

from billing.errors import CustomerStillBilled
from billing.models import Customer, Invoice, ItemVersion, Subscription, VatCheck
from billing.models.personal import erased_values, personal_columns, tables_about_people
from billing.orders.customers import customer_of
from billing.rating.vat import VatStatus
from ledger.database.lock_names import CUSTOMER
from ledger.database.statements import fetch_rows
from ledger.database.transactions import locked_transaction

ERASED: Final = re.compile("Erased on [0-9]{4}-[0-9]{2}-[0-9]{2}")
"""The name of an erased customer. The trigger on stored responses allows no other name."""

# A subscription that no run has seen since it began, or since its last amendment or charge, or that will have something due.
NOT_BILLED_TO_ITS_END = """
SELECT s.ref
FROM billing_subscription AS s
LEFT JOIN billing_cursor AS cursor ON cursor.subscription_id = s.id
WHERE s.customer_id = %(customer)s AND (
    cursor.subscription_id IS NULL OR cursor.recurring_due_at IS NOT NULL OR cursor.usage_due_at IS NOT NULL
    OR EXISTS (SELECT FROM billing_amendment AS a WHERE a.subscription_id = s.id
        AND a.sequence > least(cursor.recurring_amendments_seen, cursor.usage_amendments_seen))
    OR EXISTS (SELECT FROM billing_charge AS o WHERE o.subscription_id = s.id AND o.sequence > cursor.charges_seen))
ORDER BY s.id
LIMIT 1
"""
COLLECTION = "customers"
# Found by the primary key, which begins with the collection. A trigger allows only this change, of these members: they
# have the names of the columns.
ERASE_RESPONSES = """
UPDATE billing_requestkey
SET body = body || erased.members
FROM (SELECT %(members)s::jsonb) AS erased(members)
WHERE collection = %(collection)s AND body ->> 'ref' = %(ref)s AND body <> body || erased.members
"""


@dataclass(frozen=True)
class ErasureResult:
    """The erased rows, and the documents that still name the customer."""

    ref: str
    name: str
    responses: int
    """Responses to earlier requests that named the customer."""
    documents: int
    """Documents that keep their buyer."""

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"customer": self.ref, "name": self.name, "responses_erased": self.responses, "documents_kept": self.documents}


def erase_customer(*, ref: str) -> ErasureResult:
    """Replace the customer's name by the day of the erasure, and empty all other personal columns; or raise and write nothing.

    The reference, the terms and the holder stay, because bills need them. A second call changes nothing.

    Raises:
        NotFound: the customer does not exist.
        CustomerStillBilled: a subscription has no end yet or is not billed to its end, or a draft exists.
    """
    with locked_transaction(CUSTOMER(ref)):
        customer = customer_of(ref)
        _ensure_nothing_to_bill(customer)
        if not is_erased(customer):
            # Without a VAT id there is no reverse charge.
            erased = {**erased_values(Customer, name=f"Erased on {datetime.now(UTC):%Y-%m-%d}"), "vat_status": VatStatus.TAXABLE}
            for column, value in erased.items():
                setattr(customer, column, value)
            customer.save(update_fields=list(erased))
            VatCheck.objects.filter(customer_id=customer.pk).delete()
        responses = _erase_responses(customer)
        documents = Invoice.objects.filter(customer_id=customer.pk).exclude(state=Invoice.State.DRAFT).count()
        _erase_other_tables(customer, has_documents=documents > 0)
    return ErasureResult(ref, customer.name, responses, documents)


def _erase_responses(customer: Customer) -> int:
    members = json.dumps(erased_values(Customer, name=customer.name))
    with connection.cursor() as cursor:
        cursor.execute(ERASE_RESPONSES, {"members": members, "collection": COLLECTION, "ref": customer.ref})
        return cursor.rowcount


def _erase_other_tables(customer: Customer, *, has_documents: bool) -> None:
    # Without documents nothing relies on the lookups. With them the VAT id stays, as on the documents themselves.
    for table in tables_about_people():
        emptied = {} if table is Customer else erased_values(table, has_documents=has_documents)
        if emptied:
            table._default_manager.filter(customer_id=customer.pk).exclude(**emptied).update(**emptied)


def personal_words() -> str:
    """Return what an erasure erases of a customer beside the name, for people: "address, e-mail and VAT id"."""
    *words, last = [declaration.words for _, declaration in personal_columns(Customer) if not declaration.is_name]
    return f"{', '.join(words)} and {last}"


def is_erased(customer: Customer) -> bool:
    """Return whether the row has no personal data left."""
    erased = erased_values(Customer, name=customer.name)
    is_empty = all(getattr(customer, name) == value for name, value in erased.items())
    return is_empty and ERASED.fullmatch(customer.name) is not None


def _ensure_nothing_to_bill(customer: Customer) -> None:
    subscriptions = dict(Subscription.objects.filter(customer_id=customer.pk).values_list("pk", "ref"))
    goes_on = Q(ends_at=None) | Q(ends_at__gt=datetime.now(UTC))
    current = ItemVersion.objects.filter(goes_on, subscription_id__in=subscriptions, superseded_at=None).first()
    if current is not None:
        raise CustomerStillBilled(
            customer=customer.ref, subscription=subscriptions[current.subscription_id], why="has no end yet"
        )
    unbilled = fetch_rows(str, NOT_BILLED_TO_ITS_END, {"customer": customer.pk})
    if unbilled:
        raise CustomerStillBilled(customer=customer.ref, subscription=unbilled[0], why="is not billed to its end yet")
    draft = Invoice.objects.filter(customer_id=customer.pk, state=Invoice.State.DRAFT).first()
    if draft is not None:
        raise CustomerStillBilled(
            customer=customer.ref, subscription=draft.subscription_ref or "none", why="has a draft that is not finalised"
        )
