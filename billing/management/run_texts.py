"""The texts of `generate_invoices` for people, from the numbers that programs get as JSON."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from billing.generator.run.outcomes import RunOutcome
from billing.rating.money import MINOR_DIGITS
from ledger.units import units_of

LABEL = 15
WORDS = {
    RunOutcome.CREATED: "left as drafts",
    RunOutcome.FINALISED: "finalised",
    RunOutcome.NOTHING_DUE: "without anything due",
    RunOutcome.BUSY: "busy",
    RunOutcome.DEFERRED: "put off",
    RunOutcome.WAITS_FOR_TAXES: "waiting for their taxes",
    RunOutcome.SUSPENDED: "suspended",
    RunOutcome.FAILED: "failed",
    RunOutcome.CONFLICT: "billed by another process without the lock; the database refused the second time",
}


def run_text(summary: Mapping[str, Any]) -> str:
    """Return the text about a run."""
    return "\n".join(f"{label:<{LABEL}}{text}" for label, text in _run_lines(summary) if text)


def _run_lines(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    dry = " (dry run: nothing was written)" if summary["dry_run"] else ""
    yield "Run", f"{summary['run_id']}, as of {_time(summary['as_of'])}{dry}"
    outcomes = summary["outcomes"]
    words = WORDS | {RunOutcome.SUSPENDED: "would be suspended"} if dry else WORDS
    yield (
        "Subscriptions",
        ", ".join(f"{outcomes[kind]:,} {text}" for kind, text in words.items() if outcomes[kind]) or "none due",
    )
    lines, periods = _count_text(summary["lines"], "line"), _count_text(summary["periods"], "period")
    yield "Invoices", f"{summary['invoices']:,} with {lines} for {periods}"
    for currency, money in summary["money"].items():
        by_credits = money["credits_applied_minor"]
        paid = f", {amount(by_credits, currency)} of it paid with credits" if by_credits else ""
        yield "Billed", f"{amount(money['total_minor'], currency)} on {_count_text(money['invoices'], 'invoice')}{paid}"
    moved = {
        "Granted": summary["credits_granted"],
        "Taken back": summary["credits_taken_back"],
        "Used up": summary["credits_spent_on_usage"],
    }
    for label, given in moved.items():
        units = units_of(given)
        yield label, ", ".join(units[credit_type].amount(count) for credit_type, count in given.items())
    yield "Late usage", f"{summary['late_usage_minor']:,} minor units" if summary["late_usage_minor"] else ""
    yield "Never billed", _never_billed(summary["usage_never_billed"])
    milliseconds = summary["milliseconds"]
    yield "Took", f"{summary['seconds']:.1f} s; an invoice {milliseconds['p50']} ms, the slowest {milliseconds['max']} ms"
    yield "Ended early", _why_ended(summary)


def _why_ended(summary: Mapping[str, Any]) -> str:
    reasons = [
        "--limit was reached" if summary["limit_reached"] else "",
        "--max-runtime was reached" if summary["time_is_up"] else "",
        f"lost {_count_text(summary['workers_lost'], 'worker')}" if summary["workers_lost"] else "",
    ]
    return ", ".join(filter(None, reasons))


def _count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _never_billed(found: Any) -> str:
    if not isinstance(found, list):
        return str(found)
    return "; ".join(map(_members, found))


def check_text(figures: Mapping[str, Any]) -> str:
    """Return the text about a check."""
    lines = [f"{finding['finding']}: {finding['what']}" for finding in figures["findings"]]
    lines += [f"Usage that no run bills: {_never_billed([one])}" for one in figures["usage_never_billed"]]
    lines += _e_invoice_lines(figures["e_invoices"])
    count = len(figures["findings"])
    lines.append(f"{count} finding{'' if count == 1 else 's'}." if count else "Clean: the bills follow from the stored data.")
    return "\n".join(lines)


def _e_invoice_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield how many documents have no e-invoice, and the rules that they would break; nothing if all have one."""
    without = found["lacking"] + found["broken"]
    if not without:
        return
    rules = ", ".join(f"{rule} ({many:,})" for rule, many in found["rules"].items())
    named = f" To look at: {', '.join(found['numbers'])}." if found["numbers"] else ""
    yield f"Without e-invoice: {without:,} of {found['documents']:,} documents of the last 31 days, by {rules}.{named}"


def explanation_text(explanation: Mapping[str, Any]) -> str:
    """Return the text that says why a subscription is due or not."""
    return "\n".join(f"{label:<{LABEL}}{text}" for label, text in _explanation_lines(explanation) if text)


def _explanation_lines(explanation: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "Subscription", f"{explanation['subscription']}, as of {explanation['as_of']:%Y-%m-%d %H:%M:%S %Z}"
    yield "Due", explanation["due"]
    suspended = explanation["suspended"]
    yield "Suspended", f"{suspended['reason']} ({_members(suspended['facts'])})" if suspended else ""
    yield "First payment", _members(explanation["activation"] or {})
    for period in explanation["periods"]:
        yield f"Period {period['number']}", f"{_span(period['start'], period['end'])}"
    for version in explanation["versions"]:
        counted = f"quantity {version['quantity'].normalize():f} of {version['price_key']}"
        what = counted if version["price_key"] else "the subscription"
        on = f"{version['plan_code']} v{version['plan_version']}"
        yield "Ordered", f"{what} on {on}, {_span(version['starts_at'], version['ends_at'])}"
    for claim in explanation["newest_claims"]:
        members = {name: value for name, value in claim.items() if name not in ("starts_at", "ends_at", "item_id", "price_id")}
        yield "Billed", f"{_span(claim['starts_at'], claim['ends_at'])}: {_members(members)}"
    yield "Never billed", _never_billed(explanation["usage_never_billed"])
    lock = explanation["lock"]
    holders = "; ".join(_members(holder) for holder in lock["held_by"])
    yield "Lock", f"{lock['name']}, number {lock['number']}, {f'held by {holders}' if holders else 'which is free'}"


def _members(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items() if value not in (None, ""))


def _span(starts_at: datetime, ends_at: datetime | None) -> str:
    return f"from {starts_at:%Y-%m-%d %H:%M} to {f'{ends_at:%Y-%m-%d %H:%M} UTC' if ends_at else 'no end'}"


def amount(minor: int, currency: str) -> str:
    """Return money in the form EUR 1,204.50."""
    digits = MINOR_DIGITS[currency]
    whole, rest = divmod(abs(minor), 10**digits)
    sign = "-" if minor < 0 else ""
    return f"{currency} {sign}{whole:,}" + (f".{rest:0{digits}}" if digits else "")


def _time(text: str) -> str:
    return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S %Z}"
