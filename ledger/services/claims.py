"""Claims on credits that are gone although their money was returned: taken, withdrawn and read by who returns the money."""

from collections.abc import Collection, Sequence
from typing import Any

from ledger import journal
from ledger.database.locks import Lock
from ledger.database.statements import Statement, array
from ledger.rules.claims import MAX_CLAIMED_LOTS, MAX_CLAIMS, decode_claims
from ledger.rules.entries import Entry
from ledger.rules.requests import ClaimRequest
from ledger.services.execute import execute_under

AccountRef = tuple[str, str]

OPEN_CLAIMS = Statement(
    "open_claims",
    """
SELECT asked.holder_id, asked.credit_type, last.claims::text
FROM unnest(%(holders)s::text[], %(types)s::text[]) AS asked (holder_id, credit_type)
CROSS JOIN LATERAL (
    SELECT claims
    FROM ledger_entry
    WHERE holder_id = asked.holder_id AND credit_type = asked.credit_type
    ORDER BY sequence DESC
    LIMIT 1
) AS last
WHERE last.claims IS NOT NULL
""",
    [bytes.decode, bytes.decode, decode_claims],
)


def claim_under(lock: Lock, *, holder_id: str, credit_type: str, lots: Sequence[int], **fields: Any) -> Entry | None:
    """Claim credits that come back to the last hundred of these lots; return None if the account has as many claims as it may.

    Args:
        fields: the others of `ClaimRequest`.
    """
    if len(journal.read(lock, holder_id, credit_type).state.claims) >= MAX_CLAIMS:
        return None
    lots = list(lots[-MAX_CLAIMED_LOTS:])
    return execute_under(lock, ClaimRequest(holder_id=holder_id, credit_type=credit_type, lots=lots, **fields))


def open_claims(accounts: Collection[AccountRef]) -> dict[AccountRef, dict[int, int]]:
    """Return what is still claimed in these accounts: by the sequence of the entry that took the claim, in credits."""
    if not accounts:
        return {}
    holders, types = zip(*accounts, strict=True)
    rows = OPEN_CLAIMS.rows({"holders": array(holders), "types": array(types)})
    return {(holder, kind): {claim.setting: claim.amount for claim in claims} for holder, kind, claims in rows}
