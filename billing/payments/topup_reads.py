"""Top-ups, for showing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from billing.models import Customer
from billing.models.columns import first_of
from billing.payments.models import OPEN_INTENT, PaymentIntent, TopUp
from billing.reads.pages import page


@dataclass(frozen=True, slots=True)
class TopUpRow:
    """A top-up, its customer, and its open payment."""

    row: TopUp
    customer: str
    under_way: PaymentIntent | None

    @property
    def pk(self) -> int:
        """The id."""
        return self.row.pk

    @property
    def state(self) -> str:
        """active, paused or ended."""
        return "ended" if self.row.ended_at else "paused" if self.row.paused_at else "active"


def top_up(top_up_id: int) -> TopUpRow:
    """Return the top-up of that id.

    Raises:
        NotFound: it does not exist.
    """
    [row] = top_up_rows([first_of(TopUp.objects.filter(pk=top_up_id), "top-up", top_up_id)])
    return row


def top_ups(
    *,
    holder: str | None = None,
    customer: str | None = None,
    ended: bool | None = None,
    before: int | None = None,
    after: int | None = None,
    limit: int,
) -> list[TopUpRow]:
    """Return top-ups, the newest first, by keyset on the id.

    Raises:
        NotFound: the customer does not exist.
    """
    filters: dict[str, Any] = {}
    if holder is not None:
        filters["holder_id"] = holder
    if customer is not None:
        filters["customer_id"] = first_of(Customer.objects.filter(ref=customer), "customer", customer).pk
    if ended is not None:
        filters["ended_at__isnull"] = not ended
    return top_up_rows(page(TopUp.objects.filter(**filters), before=before, after=after, limit=limit))


def top_up_rows(rows: Sequence[TopUp]) -> list[TopUpRow]:
    """Return the top-ups with their customers and open payments."""
    customers = dict(Customer.objects.filter(pk__in={row.customer_id for row in rows}).values_list("pk", "ref"))
    intents = PaymentIntent.objects.filter(top_up_id__in=[row.pk for row in rows], state__in=OPEN_INTENT)
    under_way = {intent.top_up_id: intent for intent in intents}
    return [TopUpRow(row, customers.get(row.customer_id, ""), under_way.get(row.pk)) for row in rows]
