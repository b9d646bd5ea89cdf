"""A holder's balances in words, for the pages of other applications."""

from typing import NamedTuple

from ledger import reads
from ledger.staff.links import holder_url
from ledger.units import units_of


class ShownBalance(NamedTuple):
    """What a holder has available of a credit type, in words, and the page with more."""

    name: str
    available: str
    url: str


def shown_balances(holder_id: str) -> list[ShownBalance]:
    """Return the balances of a holder by credit type; an unknown holder has none."""
    accounts = reads.accounts(holder_id)
    units = units_of(account.credit_type for account in accounts)
    return [
        ShownBalance(
            units[account.credit_type].name,
            units[account.credit_type].amount(account.available),
            holder_url(holder_id, type=account.credit_type),
        )
        for account in accounts
    ]
