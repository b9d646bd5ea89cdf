"""The rules of claims: they are taken and withdrawn by an `adjust` entry of 0. `settlement` settles them."""

from ledger.errors import Invalid
from ledger.rules.accounts import AccountState
from ledger.rules.claims import MAX_CLAIMS, TAKEN, WITHDRAWN, LotClaim, lowered
from ledger.rules.decisions.settlement import Entries, repay, settle_due
from ledger.rules.requests import ClaimRequest, EndClaimRequest, decides


@decides(ClaimRequest)
def take_claim(account: AccountState, request: ClaimRequest) -> Entries:
    """Claim credits that will come back to these lots; what is in them is taken back at once.

    Raises:
        Invalid: the account has as many claims as it may have.
    """
    booked, account = settle_due(account)
    if len(account.claims) >= MAX_CLAIMS:
        raise Invalid(pointer="/lots", rule="too-many", detail=f"must be one of at most {MAX_CLAIMS} claims of the account")
    claim = LotClaim(account.sequence + 1, request.amount, tuple(request.lots))
    entry = account.next_entry(
        "adjust",
        0,
        lots=account.lots,
        claims=(*account.claims, claim),
        counterpart={"claim": TAKEN, "amount": claim.amount, "lots": list(claim.lots)},
        request=request,
    )
    return [*booked, entry, *repay(account.after(entry))]


@decides(EndClaimRequest)
def withdraw_claim(account: AccountState, request: EndClaimRequest) -> Entries:
    """Withdraw what is left of a claim; the entry says how much that was, 0 if all of it was settled."""
    booked, account = settle_due(account)
    left = next((claim.amount for claim in account.claims if claim.setting == request.claim), 0)
    entry = account.next_entry(
        "adjust",
        0,
        lots=account.lots,
        claims=lowered(account.claims, request.claim, left),
        counterpart={"claim": WITHDRAWN, "amount": left, "setting": request.claim},
        request=request,
    )
    return [*booked, entry]
