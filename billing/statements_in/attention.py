"""The receipts that wait for a person, on the first page."""

from typing import Any

from billing.admin.attention import count_bounded
from billing.admin.cells import list_url
from billing.rating.money import money_text
from billing.statements_in.models import BankReceipt
from billing.statements_in.permissions import VIEW_BANKRECEIPT
from ledger.operators.additions import Attention
from ledger.staff.kit.cells import day_words, row_url


def list_left_receipts(request: Any) -> list[Attention]:
    """Return the item about receipts of bank statements that are left for a person, if this operator may see it."""
    if not request.user.has_perm(VIEW_BANKRECEIPT):
        return []
    many, first = count_bounded(BankReceipt.objects.filter(state=BankReceipt.State.LEFT).order_by("-pk"))
    if first is None:
        return []
    noun = "receipt of a bank statement is" if many == "1" else "receipts of bank statements are"
    amount = money_text(first.amount_minor, first.currency)
    text = f"{many} {noun} not booked, such as {amount} of {day_words(first.booked_on)}: {first.why}."
    url = row_url(BankReceipt, first.pk) if many == "1" else list_url(BankReceipt, state="left")
    return [Attention(tone="warning", text=text, url=url, action="Book it" if many == "1" else "Book them")]
