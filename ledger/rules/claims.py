"""Claims: credits that are owed back to a seller, as part of an account's state. See docs/explanation/ledger.md.

Who returns the money of a purchase takes back its unspent credits. For those that are gone the account may have a claim: what
comes back to one of the claimed lots is taken back at once, until nothing is claimed. So an open lot is never claimed.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import orjson

MAX_CLAIMS: Final = 100
"""How many claims an account may have: it keeps the state on an entry small."""
MAX_CLAIMED_LOTS: Final = 100
TAKEN, WITHDRAWN = "taken", "withdrawn"
"""The member of `counterpart` in an `adjust` entry that takes or withdraws a claim."""


class LotClaim(NamedTuple):
    """How many of the credits that come back to some lots are to be taken back, 1 or more.

    `setting` is the sequence of the entry that took the claim, and its name; `lots` are those that came of the purchase.
    """

    setting: int
    amount: int
    lots: tuple[int, ...]


Claims = tuple[LotClaim, ...]
"""The oldest first; one of which nothing is left is no longer listed."""


def lowered(claims: Claims, setting: int, amount: int) -> Claims:
    """Return the claims after `amount` of one of them was settled."""
    changed = [each if each.setting != setting else each._replace(amount=each.amount - amount) for each in claims]
    return tuple([each for each in changed if each.amount])


def parts_of(claims: Claims, lot: int, amount: int) -> Iterable[tuple[int, int]]:
    """Yield which claims `amount` credits in a lot settle, the oldest first: each by its setting, and how much of it."""
    for claim in claims:
        part = min(amount, claim.amount) if lot in claim.lots else 0
        if part:
            amount -= part
            yield claim.setting, part


def encode_claims(claims: Claims) -> str:
    """Return the stored and digested form: arrays `[setting, amount, lot, …]`. An entry without claims stores null."""
    return orjson.dumps([(each.setting, each.amount, *each.lots) for each in claims]).decode()


def decode_claims(text: str | bytes) -> Claims:
    """Return the claims of a stored form: the inverse of `encode_claims`."""
    return tuple([LotClaim(setting, amount, tuple(lots)) for setting, amount, *lots in orjson.loads(text)])
