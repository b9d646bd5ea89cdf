"""Explains an entry: the state before and after it, each lot that it could have used, and the entry that it refers to.

The entries carry the state, so the explanation only reads them and decides nothing. The result is plain JSON for programs, with a
sentence for people in each `text`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from ledger.errors import BudgetExceeded
from ledger.rules.accounts import AccountState
from ledger.rules.budget_states import UNCOUNTED_ACTORS, own_subject, parents_of
from ledger.rules.budget_texts import counted_words, scope_words, setting_words, window_words
from ledger.rules.cost_shares import CostChange
from ledger.rules.credit_units import currency_unit
from ledger.rules.entries import Entry
from ledger.rules.holds import Hold
from ledger.rules.instants import to_text
from ledger.rules.kinds import COST_LINES, KINDS
from ledger.rules.lots import PROMOTIONAL, Drawn, Lot
from ledger.rules.purpose_texts import purpose_words
from ledger.rules.purposes import Use
from ledger.rules.recurring_texts import setting_words as recurring_words
from ledger.rules.setting_texts import claim_words, overage_words

DECISIONS = (
    "drawn",
    "not_needed",
    "for_other_things",
    "not_yet_effective",
    "expired",
    "opened",
    "joined",
    "captured",
    "returned",
    "revoked",
    "reversed",
    "reissued",
)
"""What an entry can do with a lot."""

ORDER = "priority, soonest expiry, promotional before purchased, oldest"


def is_booked_by_itself(entry: Entry) -> bool:
    """Return whether the ledger booked this entry because it was due, beside the entry of a request."""
    return entry.idempotency_key is None and KINDS[entry.kind].booked is not None


def settles_claim(entry: Entry) -> bool:
    """Return whether the entry took back credits that were claimed."""
    return entry.kind == "revoke" and entry.idempotency_key is None and entry.postpaid is None


def explain(
    entry: Entry,
    previous: Entry | None,
    *,
    booked_before: Sequence[Entry],
    booked_after: Sequence[Entry],
    referred: Entry | None,
) -> dict[str, Any]:
    """Return the explanation of an entry.

    Args:
        previous: the entry before it; None for the account's first entry.
        booked_before, booked_after: the due entries that were booked with it, directly before and after it.
        referred: the entry that it refers to, if any.
    """
    before = AccountState(entry.holder_id, entry.credit_type, entry.decided_us)
    if previous is not None:
        before = before.after(previous)
    return {
        "sequence": entry.sequence,
        "kind": entry.kind,
        "text": KINDS[entry.kind].text_of(entry).explained.format(**_facts(entry)),
        "before": _state(before),
        "after": _state(before.after(entry)),
        "lots": _lots(entry, before),
        "costs": _costs(entry),
        "budgets": list(_budgets(entry)),
        "booked_before": [_explain_booked(each) for each in booked_before],
        "booked_after": [_explain_booked(each) for each in booked_after],
        "refers_to": None if referred is None else _explain_referred(entry, before, referred),
    }


def _state(account: AccountState) -> dict[str, Any]:
    return {
        "sequence": account.sequence,
        "available": account.available,
        "balance": account.balance,
        "held": account.held,
        "overdraft": account.overdraft or 0,
        "owed": account.owed,
        "lots": [_lot(lot, account.now_us) for lot in account.lots],
        "holds": [_hold(hold, account.now_us) for hold in account.holds],
    }


def _lot(lot: Lot, now_us: int) -> dict[str, Any]:
    return {
        "grant": lot.grant,
        "remaining": lot.remaining,
        "effective_at": to_text(lot.effective_us),
        "expires_at": None if lot.expires_us is None else to_text(lot.expires_us),
        "priority": lot.priority,
        "source": lot.source,
        "state": lot.state(now_us),
        **({} if lot.applies_to is None else {"applies_to": lot.applies_to.shown()}),
    }


def _hold(hold: Hold, now_us: int) -> dict[str, Any]:
    return {
        "hold": hold.sequence,
        "amount": hold.amount,
        "expires_at": to_text(hold.expires_us),
        "state": hold.state(now_us),
    }


def _explain_booked(entry: Entry) -> dict[str, Any]:
    booked = KINDS[entry.kind].booked
    sentence = "{amount} of lot {refers_to} came back, and were claimed." if settles_claim(entry) else booked and booked[1]
    return {
        "sequence": entry.sequence,
        "kind": entry.kind,
        "amount": entry.amount,
        "refers_to": entry.refers_to,
        "effective_at": to_text(entry.effective_us),
        "text": sentence.format(**_facts(entry)) if sentence else "",
    }


# The lots --------------------------------------------------------------------------------------------


def _lots(entry: Entry, before: AccountState) -> list[dict[str, Any]]:
    """Return what the entry did with each lot, in the order of its walk, including the lots that it skipped."""
    drawn, kind = dict(entry.drawn), KINDS[entry.kind]
    opened = [
        _decision(lot.grant, lot.remaining, "opened", _place(lot, entry))
        for lot in entry.lots
        if kind.opens_lots and _is_new(lot, entry) and lot.grant not in drawn
    ]
    if opened and not drawn:
        return opened
    if kind.takes and entry.refers_to is None:
        return (
            [_explain_taken(lot, before, _use_of(entry), drawn.get(lot.grant, 0)) for lot in before.lots]
            if drawn or (entry.kind == "spend" and entry.amount)
            else []
        )
    if kind.of_lot is None:
        return []
    decision, text = kind.of_lot
    changed = [
        _decision(grant, amount, decision, _explain_returned(entry, before, grant) or text) for grant, amount in entry.drawn
    ]
    return changed + opened


def _decision(grant: int, amount: int, decision: str, text: str) -> dict[str, Any]:
    return {"grant": grant, "amount": amount, "decision": decision, "text": text}


def _use_of(entry: Entry) -> Use | None:
    """What the entry used the credits for; None for a transfer, a debt or an invoice, which is no certain thing."""
    if entry.kind not in ("spend", "hold") or entry.actor in UNCOUNTED_ACTORS:
        return None
    return Use((entry.rating or {}).get("rate"), entry.metadata)


def _explain_taken(lot: Lot, before: AccountState, use: Use | None, amount: int) -> dict[str, Any]:
    if amount:
        rest = f"; {lot.remaining - amount} remain" if amount < lot.remaining else ""
        return _decision(lot.grant, amount, "drawn", f"Used {amount} of {lot.remaining}{rest}. {_ahead(lot, before, use)}")
    if lot.is_expired(before.now_us):
        return _decision(lot.grant, 0, "expired", f"Skipped: the lot expired at {to_text(lot.expires_us or 0)}.")
    if not lot.is_spendable(before.now_us):
        return _decision(lot.grant, 0, "not_yet_effective", f"Skipped: the lot is effective from {to_text(lot.effective_us)}.")
    if not lot.covers(use):
        words = purpose_words(None if lot.applies_to is None else lot.applies_to.shown())
        return _decision(lot.grant, 0, "for_other_things", f"Skipped: its credits are {words}.")
    return _decision(lot.grant, 0, "not_needed", "The lots before it had enough credits.")


def _ahead(lot: Lot, before: AccountState, use: Use | None) -> str:
    """Return the criterion of the burn order by which the lot comes before the next usable lot."""
    behind = [
        other
        for other in before.lots
        if other.burn_rank > lot.burn_rank and other.is_spendable(before.now_us) and other.covers(use)
    ]
    if not behind:
        return "It is the last usable lot."
    following = behind[0]
    if lot.priority != following.priority:
        why = f"its priority {lot.priority} is ahead of {following.priority}"
    elif lot.expires_us != following.expires_us:
        why = "it expires sooner" if following.expires_us is not None else "it expires, and the other does not"
    elif lot.source != following.source:
        why = f"{PROMOTIONAL} credits are used first"
    else:
        why = "it is older"
    return f"It comes before lot {following.grant}: {why}."


def _is_new(lot: Lot, entry: Entry) -> bool:
    return lot.grant == entry.sequence


def _place(lot: Lot, entry: Entry) -> str:
    return f"A new lot, number {entry.lots.index(lot) + 1} of {len(entry.lots)} in the order of use: {ORDER}."


def _explain_returned(entry: Entry, before: AccountState, grant: int) -> str:
    """Return what is special about a lot that got credits back, or an empty text."""
    if entry.kind != "refund":
        return ""
    lot = next((each for each in entry.lots if each.grant == grant), None)
    if grant == entry.sequence:
        until = "" if lot is None or lot.expires_us is None else f" until {to_text(lot.expires_us)}"
        return f"The original lot has expired: the credits form a new lot{until}."
    if lot is not None and lot.received:
        return "The credits were received: they are in the lot that receipts of the same terms share."
    if before.lot(grant) is None:
        return "The lot was used up; it is open again with its old terms."
    return ""


# The costs -------------------------------------------------------------------------------------------


def _costs(entry: Entry) -> list[dict[str, Any]]:
    """Return what the entry changed of the costs of lots."""
    left = {cost.lot: cost.left for cost in entry.costs}
    return [
        {
            "grant": change.lot,
            "change_minor": change.minor,
            "left_minor": left.get(change.lot, 0),
            "currency": change.currency,
            "text": _cost_text(entry.kind, change, left.get(change.lot, 0)),
        }
        for change in entry.cost_changes
    ]


def _cost_text(kind: str, change: CostChange, left: int) -> str:
    unit = currency_unit(change.currency)
    line = COST_LINES[KINDS[kind].cost or "sold"]
    return f"{line.text.format(money=unit.amount(abs(change.minor)), lot=change.lot)} {unit.amount(left)} are left."


# The budgets -----------------------------------------------------------------------------------------


def _budgets(entry: Entry) -> Iterator[dict[str, Any]]:
    """Yield what each budget that counted the entry, or got something back from it, had counted before and after it."""
    known = {budget.setting: budget for budget in entry.present_budgets}
    for each in entry.counts:
        budget = known[each.setting]
        subject, used_before = own_subject(budget, each.subject), each.total - each.amount
        yield {
            "budget": budget.name,
            "subject": subject,
            "within": parents_of(budget, each.subject),
            "mode": budget.mode,
            "limit": budget.limit,
            "used_before": used_before,
            "used": each.total,
            "text": f"{scope_words(budget.by, budget.label, subject).capitalize()} has used {each.total} of {budget.limit} "
            f"{window_words(budget.window, budget.hours, budget.time_zone)}; before, {used_before}.",
        }


# Sentences -------------------------------------------------------------------------------------------


def _facts(entry: Entry) -> dict[str, Any]:
    """What fills the texts of the kinds."""
    amount, drawn = abs(entry.amount), _total(entry.drawn)
    return {
        "amount": _credits(amount),
        "drawn": _credits(drawn),
        "of_requested": f" of the {entry.requested} requested" if entry.requested is not None else "",
        "lots": _count_text(len(entry.drawn), "lot"),
        "order": ORDER,
        "refers_to": entry.refers_to,
        "on_overage": f", {entry.postpaid} of them on overage" if entry.postpaid else "",
        "on_overdraft": f" and {amount - drawn} on the overdraft" if amount > drawn else "",
        "repaying": f", and {amount - drawn} repaid the overdraft" if amount > drawn else "",
        "from_hold": drawn - amount,
        "beyond": f", and {amount} from the balance beyond it" if amount else "",
        "because": f": {entry.reason}" if entry.reason else "",
        "other": (entry.counterpart or {}).get("holder_id", "another holder"),
        "arrived": _explain_arrival(entry),
        "set": _set(entry),
        "lowest": -(entry.overdraft or 0),
        "refused": _explain_refusal(entry),
    }


def _set(entry: Entry) -> str:
    if entry.recurring_grant is not None:
        return f"account {recurring_words(entry.counterpart or {}, _credits)}"
    if entry.kind == "adjust" and entry.shown_overage is not None:
        return f"account {overage_words(entry.counterpart or {}, _credits)}"
    if entry.kind == "adjust" and "claim" in (entry.counterpart or {}):
        return f"account {claim_words(entry.counterpart or {}, _credits)}"
    if entry.budget is not None:
        return f"account {setting_words(entry.counterpart, _credits)}"
    if entry.freezes is not None:
        return f"holder is {'' if entry.freezes else 'no longer '}frozen"
    if entry.clock_us is not None:
        return f"holder's test clock shows {to_text(entry.clock_us)}"
    return f"account {'accepts' if entry.accepts_transfers else 'refuses'} transfers from others"


def _explain_refusal(entry: Entry) -> str:
    if not entry.refusal:
        return ""
    facts = entry.refusal["facts"]
    why = f" {counted_words(**facts)}" if entry.refusal["code"] == BudgetExceeded.code else ""
    return f"The ledger refused the {entry.refusal['operation']}: {entry.refusal['code']}.{why}"


def _explain_arrival(entry: Entry) -> str:
    return f"which joined lot {entry.drawn[0][0]} of the same terms" if entry.drawn else "now a new lot with its old terms"


def _count_text(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _credits(amount: int) -> str:
    return _count_text(amount, "credit")


def _total(drawn: Drawn) -> int:
    return sum(amount for _, amount in drawn)


# What it refers to -----------------------------------------------------------------------------------


def _explain_referred(entry: Entry, before: AccountState, referred: Entry) -> dict[str, Any]:
    facts: dict[str, Any] = {"sequence": referred.sequence, "kind": referred.kind, "amount": referred.amount}
    if entry.kind == "refund":
        returned = entry.refunded_total or 0
        facts |= {"taken": referred.taken, "returned_before": returned - entry.amount, "returned": returned}
        facts["refundable"] = referred.taken - returned
        facts["text"] = (
            f"Refunds have returned {returned} of the {_credits(referred.taken)} taken; {facts['refundable']} can be refunded."
        )
    elif referred.kind == "hold":
        held = next((hold.amount for hold in before.holds if hold.sequence == referred.sequence), 0)
        rest = 0 if entry.hold is None else entry.hold.amount
        facts |= {"held_before": held, "held": rest, "expires_at": to_text(entry.hold.expires_us) if entry.hold else None}
        facts["text"] = (
            f"The hold set aside {_credits(-referred.amount)}; it held {held} before this entry and holds {rest} after it."
        )
    elif referred.kind in ("transfer_in", "transfer_out"):
        facts["text"] = f"The transfer moved {_credits(abs(referred.amount))}."
    else:
        lot = next((lot.remaining for lot in entry.lots if lot.grant == referred.sequence), 0)
        facts |= {"remaining": lot, "text": f"The grant's lot has {lot} of {_credits(referred.amount)} left."}
    return facts
