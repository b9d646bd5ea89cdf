"""Recurring grants: set, ended, and granted period by period. Each function returns the entries in order."""

from collections.abc import Collection
from typing import Any, Final, NamedTuple

from ledger.errors import RecurringGrantDue, RecurringGrantLimit, RecurringGrantNotFound
from ledger.rules.accounts import AccountState
from ledger.rules.decisions.credit_rules import grant
from ledger.rules.decisions.settlement import Entries, settle_due
from ledger.rules.decisions.skipped_periods import SkippedPeriods, skipped_periods
from ledger.rules.entries import BY_THE_LEDGER, Entry
from ledger.rules.instants import from_us, to_text, to_us
from ledger.rules.lots import Lot, remove, split, total
from ledger.rules.recurring_terms import (
    FULL,
    KEEP,
    MAX_RECURRING_GRANTS,
    GrantedSpan,
    GrantPart,
    RecurringGrant,
    RecurringTerms,
    Span,
    grant_words,
)
from ledger.rules.requests import EndRecurringGrantRequest, GrantRequest, RecurringGrantRequest, RevokeRequest


def set_recurring_grant(
    account: AccountState,
    request: RecurringGrantRequest,
    *,
    known: RecurringGrant | None,
    others: int,
    others_next_us: int | None = None,
) -> Entries:
    """Set a recurring grant, or give it other terms, by an `adjust` entry of 0.

    Other terms begin at once: what was granted for time that they cut is revoked before, as far as it is unspent, and the share
    of the rest of their period is due. With `change` keep, they begin where the last grant ends.

    Args:
        known: the recurring grant of that name, if the account has one or had one.
        others: how many of other names the account has that have not ended.
        others_next_us: when one of them is due next; None: never.

    Raises:
        RecurringGrantDue: a grant by the present terms is due.
        RecurringGrantLimit: the account has as many others as it may have.
    """
    _ensure_none_is_due(account, request, known)
    if others >= MAX_RECURRING_GRANTS:
        raise RecurringGrantLimit(limit=MAX_RECURRING_GRANTS)
    booked, account = settle_due(account)
    terms = _terms_of(account, request, known)
    if request.parts or request.first_at is not None:
        first, cut_us = _First(None if request.first_at is None else terms.first(to_us(request.first_at))), None
    else:
        first, cut_us = _first(account, terms, known, request.change)
    granted = None if known is None else known.granted
    if cut_us is not None and granted is not None and cut_us < granted.until_us:
        assert known is not None
        revoked = _given_back(account, request, known, granted, cut_us)
        booked += revoked
        account = account.after_all(revoked)
        granted = granted._replace(amount=granted.kept(cut_us), until_us=cut_us)
    until_us = None if known is None else known.granted_until_us
    if cut_us is not None and until_us is not None:
        until_us = min(until_us, cut_us)
    return [*booked, _setting(account, request, terms, first, until_us, granted, others_next_us)]


class _First(NamedTuple):
    """The next period to grant; None if there is none. `begins_us` is None if all of it is."""

    period: int | None
    begins_us: int | None = None
    is_full: bool = False


def _first(account: AccountState, terms: RecurringTerms, known: RecurringGrant | None, change: str) -> tuple[_First, int | None]:
    """Return what other terms grant first, and the instant at which they cut what was granted; None: they cut nothing."""
    now_us = account.now_us
    until_us = None if known is None else known.granted_until_us
    if known is None or until_us is None:
        return _First(terms.first(now_us)), None
    cuts = until_us > now_us and change != KEEP and known.terms is not None and not terms.gives_like(known.terms, now_us)
    from_us_ = now_us if cuts else max(now_us, until_us)
    n = terms.first(from_us_)
    if n is None:
        return _First(None), now_us if cuts else None
    start_us = terms.span(n).start_us
    begins_us = max(start_us, now_us if cuts else until_us)
    is_part = begins_us > start_us
    return _First(n, begins_us if is_part else None, is_part and cuts and change == FULL), begins_us if cuts else None


def _given_back(
    account: AccountState, request: RecurringGrantRequest, known: RecurringGrant, granted: GrantedSpan, cut_us: int
) -> Entries:
    """Revoke what was granted for the time from an instant on, as far as it is unspent and not held."""
    lot = next((one for one in account.lots if one.grant == granted.lot), None)
    amount = min(granted.amount - granted.kept(cut_us), 0 if lot is None else lot.remaining)
    if lot is None or amount <= 0:
        return []
    named: dict[str, Any] = {
        "holder_id": account.holder_id,
        "credit_type": account.credit_type,
        "idempotency_key": f"recurring/{account.credit_type}/{known.name}/{known.setting}/cut/{lot.grant}",
        "reason": "Other terms of the recurring grant",
        "reference": f"recurring grant {known.name}",
        "metadata": {"recurring_grant": known.name},
        "actor": BY_THE_LEDGER,
    }
    return [
        account.next_entry(
            "revoke",
            -amount,
            lots=remove(account.lots, lot.grant, amount),
            drawn=((lot.grant, amount),),
            refers_to=lot.grant,
            request=RevokeRequest(**named, grant=lot.grant, amount=amount),
        )
    ]


def end_recurring_grant(
    account: AccountState,
    request: EndRecurringGrantRequest,
    *,
    known: RecurringGrant | None,
    others_next_us: int | None = None,
) -> Entries:
    """End a recurring grant, by an `adjust` entry of 0; what it granted stays.

    Args: as for `set_recurring_grant`.

    Raises:
        RecurringGrantNotFound: the account has none of that name.
        RecurringGrantDue: a grant is due.
    """
    if known is None or known.terms is None:
        raise RecurringGrantNotFound(recurring_grant=request.recurring_grant)
    if not request.drops_due:
        _ensure_none_is_due(account, request, known)
    booked, account = settle_due(account)
    return [*booked, _setting(account, request, None, _First(None), known.granted_until_us, known.granted, others_next_us)]


def _ensure_none_is_due(
    account: AccountState, request: RecurringGrantRequest | EndRecurringGrantRequest, known: RecurringGrant | None
) -> None:
    # A dry run shows what the request does after that.
    if known is not None and known.is_due(account.now_us) and not request.dry_run:
        assert known.next_us is not None
        raise RecurringGrantDue(recurring_grant=known.name, due_at=to_text(known.next_us))


def _terms_of(account: AccountState, request: RecurringGrantRequest, known: RecurringGrant | None) -> RecurringTerms:
    if request.starts_at is not None:
        starts_us = to_us(request.starts_at)
    else:
        starts_us = account.now_us if known is None or known.terms is None else known.terms.starts_us
    return RecurringTerms(
        amount=request.amount,
        up_to=request.up_to,
        interval=request.interval,
        interval_count=request.interval_count,
        starts_us=starts_us,
        time_zone=request.time_zone,
        source=request.source,
        priority=request.priority,
        expiry=request.expiry,
        expires_after_days=request.expires_after_days,
        rollover_cap=request.rollover_cap,
        ends_us=None if request.ends_at is None else to_us(request.ends_at),
        periods=request.periods,
        applies_to=request.applies_to,
    )


def _setting(
    account: AccountState,
    request: RecurringGrantRequest | EndRecurringGrantRequest,
    terms: RecurringTerms | None,
    first: _First,
    until_us: int | None,
    granted: GrantedSpan | None,
    others_next_us: int | None,
) -> Any:
    next_us = None
    setting: dict[str, Any] = {"recurring_grant": request.recurring_grant}
    if terms is not None:
        setting["terms"] = terms.stored()
    if terms is not None and first.period is not None:
        begins_us = first.begins_us
        next_us = terms.span(first.period).start_us if begins_us is None else begins_us
        setting |= {"next_period": first.period}
        setting |= {} if begins_us is None else {"begins_at": to_text(begins_us)}
        setting |= {"is_full": True} if first.is_full else {}
    if isinstance(request, RecurringGrantRequest) and (request.parts or request.first_at is not None):
        setting["granted_as"] = [request.reason, request.reference]
        setting |= {"known_as": request.known_as} if request.known_as else {}
        setting |= {"parts": [each.stored() for each in request.parts]} if request.parts else {}
        next_us = _soonest(next_us, *(each.due_us for each in request.parts))
    if next_us is not None:
        setting["next_at"] = to_text(next_us)
    if granted is not None:
        setting["granted"] = granted.stored()
    if until_us is not None:
        setting["granted_until"] = to_text(until_us)
    account = account._replace(next_grant_us=_soonest(next_us, others_next_us))
    return account.next_entry("adjust", 0, lots=account.lots, counterpart=setting, request=request)


def _soonest(*instants_us: int | None) -> int | None:
    return min((each for each in instants_us if each is not None), default=None)


# One period ------------------------------------------------------------------------------------------


BEYOND_CAP: Final = "Beyond what the next period keeps"
FOR_UNUSED_TIME: Final = "For time that is not used"
SKIPPING: Final = ("recurring_grant", "period_start", "period_end", "periods", "because")
"""What an entry that skips periods says of them."""


class GrantedPeriod(NamedTuple):
    """The entries of one period, or of those skipped together, and the recurring grant after it."""

    entries: Entries
    after: RecurringGrant


def grant_period(
    account: AccountState,
    recurring: RecurringGrant,
    *,
    lots: Collection[int] = (),
    expired: Collection[tuple[int, int]] = (),
    decided_from_us: int = 0,
    others_next_us: int | None = None,
) -> GrantedPeriod:
    """Grant the next period, as a run at its start would have.

    The account is taken as of the start of the period: what has expired by then is booked, what has expired since is left to the
    next period, or to the next write. So a late run leaves what a run in time would have left. What a request decided since
    stays: then the account is taken as of that request, and a period that had ended before gets nothing.

    Many periods that have left nothing by now are skipped together: see `skipped_periods`. A part that the terms name comes
    before a period that begins later, and takes back of earlier lots what it says.

    Args:
        lots: the numbers of the open lots that the recurring grant opened.
        expired: what has been booked of its lots that expired since the start of the period: each with time and amount. What
            periods that were skipped had granted is in `recurring`.
        decided_from_us: when the last request changed the account.
        others_next_us: when one of the account's other recurring grants is due next; None: never.

    Raises:
        LotLimit: the account has too many lots; nothing is written.
    """
    start_us, now_us = recurring.next_us, account.now_us
    assert start_us is not None
    as_of_us = max(start_us, min(decided_from_us, now_us))
    # What is not as of then is decided now: by the test clock, or at the time that `next_entry` records.
    recorded_us = max(account.server_us or now_us, account.recorded_us)
    present_us = now_us if account.server_us else recorded_us
    account = account._replace(now_us=as_of_us, recorded_us=recorded_us)
    entries, account = settle_due(account, decided_us=present_us)
    if recurring.due_part is not None:
        part = _part_granted(
            account, recurring, recurring.due_part, lots=lots, others_next_us=others_next_us, present_us=present_us
        )
        return part._replace(entries=[*entries, *part.entries])
    terms, n = recurring.terms, recurring.next_period
    assert terms is not None
    assert n is not None
    span = recurring.part(n)
    expired_since = [each for each in expired if each[0] > as_of_us]
    skipped = skipped_periods(account, recurring, now_us=now_us, lots=lots, expired=expired_since)
    if skipped is not None:
        return _skip(account, recurring, skipped, entries, others_next_us=others_next_us, present_us=present_us)
    after = recurring.after(n)
    request = _period_request(account, recurring, after, until=n)
    # Only a period that begins takes what has rolled over: not one that other terms continue.
    if terms.rollover_cap is not None and span == terms.span(n):
        revoked = _revoke_parts(account, request, _beyond_cap(account, lots, terms.rollover_cap), present_us)
        entries += revoked
        account = account.after_all(revoked)
    account = account._replace(next_grant_us=_soonest(after.next_us, others_next_us))
    amount = recurring.amount(n)
    if amount is None:
        gone = sum(left for at_us, left in (*expired_since, *recurring.still_open) if at_us > as_of_us)
        amount = _filling(account, terms, lots, gone)
    expires_us = recurring.expires_us(n)
    if amount == 0 or (expires_us is not None and expires_us <= as_of_us):
        return GrantedPeriod([*entries, _nothing(account, request, present_us)], after)
    made = GrantRequest(
        **_common(request),
        amount=amount,
        effective_at=from_us(span.start_us),
        source=terms.source,
        priority=terms.priority,
        applies_to=terms.applies_to,
        expires_at=None if expires_us is None else from_us(expires_us),
    )
    return GrantedPeriod([*entries, *grant(account, made)], after)


def _skip(
    account: AccountState,
    recurring: RecurringGrant,
    skipped: SkippedPeriods,
    entries: Entries,
    *,
    others_next_us: int | None,
    present_us: int,
) -> GrantedPeriod:
    """Say by one `adjust` entry of 0, behind others, that periods have left nothing."""
    assert recurring.next_period is not None
    after = recurring._replace(still_open=skipped.still_open).after(skipped.last)
    request = _period_request(account, recurring, after, until=skipped.last)
    request.metadata.update(periods=skipped.last - recurring.next_period + 1, because=skipped.because)
    account = account._replace(next_grant_us=_soonest(after.next_us, others_next_us))
    named = {name: request.metadata[name] for name in SKIPPING}
    if after.still_open:
        named["still_open"] = request.metadata["still_open"]
    entry = account.next_entry("adjust", 0, lots=account.lots, counterpart=named, request=request, effective_us=present_us)
    return GrantedPeriod([*entries, entry], after)


def _part_granted(
    account: AccountState,
    recurring: RecurringGrant,
    part: GrantPart,
    *,
    lots: Collection[int],
    others_next_us: int | None,
    present_us: int,
) -> GrantedPeriod:
    """Take back what the part ends of earlier lots and what it does not keep, and grant its own credits.

    What is spent or held stays.
    """
    assert recurring.terms is not None
    after = recurring.after_part()
    request = _request(account, recurring, after, part.span, {"part": recurring.next_part})
    entries = _revoke_parts(account, request, _unspent_of(account, part.taken_back), present_us, back=True)
    account = account.after_all(entries)
    if part.rollover_cap is not None:
        revoked = _revoke_parts(account, request, _beyond_cap(account, lots, part.rollover_cap), present_us)
        entries += revoked
        account = account.after_all(revoked)
    account = account._replace(next_grant_us=_soonest(after.next_us, others_next_us))
    if part.amount == 0 or (part.expires_us is not None and part.expires_us <= account.now_us):
        return GrantedPeriod([*entries, _nothing(account, request, present_us)], after)
    made = GrantRequest(
        **_common(request),
        amount=part.amount,
        effective_at=from_us(part.due_us),
        source=recurring.terms.source,
        priority=recurring.terms.priority,
        applies_to=part.applies_to,
        expires_at=None if part.expires_us is None else from_us(part.expires_us),
    )
    return GrantedPeriod([*entries, *grant(account, made)], after)


def _unspent_of(account: AccountState, amounts: Collection[tuple[int, int]]) -> list[Lot]:
    """Return of each of these lots what it has of the amount."""
    by_grant = {lot.grant: lot for lot in account.lots}
    unspent = [(by_grant[grant_], amount) for grant_, amount in amounts if grant_ in by_grant]
    return [lot._replace(remaining=min(lot.remaining, amount)) for lot, amount in unspent if lot.remaining]


def _nothing(account: AccountState, request: GrantRequest, present_us: int) -> Entry:
    """Say by an `adjust` entry of 0 that a period or part brings no credits."""
    named = {name: request.metadata[name] for name in ("recurring_grant", "period_start", "period_end")}
    return account.next_entry("adjust", 0, lots=account.lots, counterpart=named, request=request, effective_us=present_us)


def key_of(recurring: RecurringGrant, credit_type: str) -> str:
    """Return the idempotency key of the next period or part: each of a setting is granted at most once."""
    number = recurring.next_period if recurring.due_part is None else f"part/{recurring.next_part}"
    return f"recurring/{credit_type}/{recurring.name}/{recurring.setting}/{number}"


def _period_request(account: AccountState, recurring: RecurringGrant, after: RecurringGrant, *, until: int) -> Any:
    """The request by which the ledger grants the next period, or skips those up to one; its amount is a placeholder."""
    assert recurring.next_period is not None
    span = Span(recurring.part(recurring.next_period).start_us, recurring.part(until).end_us)
    return _request(account, recurring, after, span, {"period": until})


def _request(
    account: AccountState, recurring: RecurringGrant, after: RecurringGrant, span: Span, number: dict[str, int]
) -> GrantRequest:
    assert recurring.terms is not None
    metadata: dict[str, Any] = {
        "recurring_grant": recurring.name,
        "setting": recurring.setting,
        **number,
        "period_start": to_text(span.start_us),
        "period_end": to_text(span.end_us),
        "as_of": to_text(account.now_us),
    }
    if after.next_us is not None:
        metadata["next_at"] = to_text(after.next_us)
    if after.still_open:
        metadata["still_open"] = [list(each) for each in after.still_open]
    return GrantRequest(
        holder_id=account.holder_id,
        credit_type=account.credit_type,
        idempotency_key=key_of(recurring, account.credit_type),
        amount=1,
        reason=recurring.granted_as[0] or grant_words(recurring.terms, span),
        reference=recurring.granted_as[1] or f"recurring grant {recurring.name}",
        metadata=metadata,
        actor=BY_THE_LEDGER,
    )


def _common(request: GrantRequest) -> dict[str, Any]:
    names = ("holder_id", "credit_type", "idempotency_key", "reason", "reference", "metadata", "actor")
    return {name: getattr(request, name) for name in names}


def _filling(account: AccountState, terms: RecurringTerms, lots: Collection[int], gone: int) -> int:
    assert terms.up_to is not None
    return max(0, terms.up_to - _unspent(account, lots) - gone)


def _unspent(account: AccountState, lots: Collection[int]) -> int:
    """Return what the recurring grant's lots have left now, in open holds too."""
    return total(lot for lot in account.lots_and_held_parts if lot.grant in lots and not lot.is_expired(account.now_us))


def _beyond_cap(account: AccountState, lots: Collection[int], cap: int) -> tuple[Lot, ...]:
    """Return the parts of the recurring grant's lots to revoke, the oldest first. What holds set aside is not revoked.

    Lots that expire do not roll over: they end by themselves.
    """
    own, held = (
        [lot for lot in where if lot.grant in lots and lot.expires_us is None]
        for where in (account.lots, [part for hold in account.holds for part in hold.parts])
    )
    return split(tuple(sorted(own)), max(0, total(own) + total(held) - cap))[0]


def _revoke_parts(
    account: AccountState, request: GrantRequest, parts: Collection[Lot], present_us: int, *, back: bool = False
) -> Entries:
    entries: Entries = []
    for part in parts:
        named = _common(request) | {"idempotency_key": f"{request.idempotency_key}/{'back' if back else 'cap'}/{part.grant}"}
        named["reason"] = FOR_UNUSED_TIME if back else BEYOND_CAP
        entry = account.next_entry(
            "revoke",
            -part.remaining,
            lots=remove(account.lots, part.grant, part.remaining),
            drawn=((part.grant, part.remaining),),
            refers_to=part.grant,
            effective_us=present_us,
            request=RevokeRequest(**named, grant=part.grant, amount=part.remaining),
        )
        entries.append(entry)
        account = account.after(entry)
    return entries
