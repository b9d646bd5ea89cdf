"""The results of a run of the invoice generator, in sentences."""

import re
from collections.abc import Mapping
from typing import Final

from billing.admin.document_tables import notation_in
from billing.generator.run.outcomes import RunOutcome
from billing.models import Run
from ledger.staff.kit.cells import instant_words, number_text

ENDED: Final = {
    0: "finished",
    1: "ended with an error",
    3: "finished with failures",
    4: "finished and left some subscriptions for the next run",
    5: "stopped at its limit",
    6: "stopped at the end of its time",
    130: "was stopped",
    143: "was stopped",
}
"""The end of a run in words, by its exit code."""
OUTCOMES: Final = {
    "nothing_due": ("{} had nothing due", "{} had nothing due"),
    "busy": ("{} was being billed by another process", "{} were being billed by another process"),
    "deferred": ("{} was left for later", "{} were left for later"),
    "waits_for_taxes": ("{} waits for its taxes", "{} wait for their taxes"),
    "suspended": ("billing of {} is suspended", "billing of {} is suspended"),
    "failed": ("{} failed", "{} failed"),
    "conflict": ("{} met a period that was billed already", "{} met a period that was billed already"),
}
"""Results of subscriptions without an invoice, for one and for several."""

SUSPENDED: Final = {
    "amount-too-large": "an amount is larger than an invoice can have",
    "date-out-of-range": "a date lies outside the years 2000 to 2200",
    "quantity-too-large": "a quantity is larger than a line can have",
    "told-twice": "spends and usage events tell the same use",
    "too-many-groups": "the usage of a price has too many groups",
    "too-many-lines": "an invoice would have too many lines",
    "too-many-lines-per-day": "too many lines would begin on the same day",
    "too-many-periods": "too many periods would be billed at once",
    "too-many-usage-periods": "too many periods of usage would be billed at once",
    "unusual-amount": "the amount is far above the usual one",
}
"""Why billing of a subscription was suspended, by the reason that is recorded."""
NAME_OF_EXCEPTION: Final = re.compile(r"^\w+: ")


def run_sentences(run: Run) -> list[str]:
    """Return how the run ended and what it made, what it left for later, and its options."""
    return [_end_sentence(run), *_others(run), *_options(run)]


def _end_sentence(run: Run) -> str:
    on = f" on {run.host}" if run.host else ""
    if run.finished_at is None:
        return f"This run began{on} and has not ended: it is still running, or it was killed."
    how = ENDED.get(run.exit_code or 0, f"ended with exit code {run.exit_code}")
    took = _duration((run.finished_at - run.started_at).total_seconds())
    made = run.summary.get("invoices")
    if made is None:
        counted = run.summary.get("outcomes", {})
        made = counted.get("created", 0) + counted.get("finalised", 0)
    return f"The run {how} after {took}{on}: {_invoices_sentence(made, run.summary.get('money', {}))}."


def _invoices_sentence(invoices: int, money: Mapping[str, Mapping[str, int]]) -> str:
    if not invoices:
        return "it made no invoice"
    totals = " and ".join(
        f"{notation_in(currency).money(sums['total_minor'])} {currency}" for currency, sums in sorted(money.items())
    )
    noun = "invoice" if invoices == 1 else "invoices"
    return f"{invoices:,} {noun}{f' over {totals}' if totals else ''}"


def _others(run: Run) -> list[str]:
    counted = run.summary.get("outcomes", {})
    counts = []
    for name, words in OUTCOMES.items():
        many = counted.get(name, 0)
        if many:
            counts.append(words[many != 1].format(f"{many:,} subscription{'' if many == 1 else 's'}"))
    if not counts:
        return []
    joined = "; ".join(counts)
    return [f"{joined[0].upper()}{joined[1:]}."]


def _options(run: Run) -> list[str]:
    """Return the options of the run that differ from the usual ones."""
    options = run.options or {}
    parts = [f"It billed up to {instant_words(run.as_of)}"]
    only = options.get("only")
    if only and only != "all":
        parts.append(f"{only} charges only")
    workers = options.get("workers")
    if isinstance(workers, int) and workers > 1:
        parts.append(f"with {workers} workers")
    others = [
        f"{name.replace('_', ' ')} {value}" if value is not True else name.replace("_", " ")
        for name, value in sorted(options.items())
        if name not in ("only", "workers", "as_of") and value not in (None, False, "", [], {})
    ]
    return [f"{', '.join([*parts, *others])}."]


def _duration(seconds: float) -> str:
    if seconds < 1:
        return "less than a second"
    if seconds < 120:
        return f"{seconds:.0f} second{'' if round(seconds) == 1 else 's'}"
    return f"{seconds / 60:.0f} minutes"


def words(name: str) -> str:
    """Return a name of the generator in words."""
    return name.replace("_", " ")


def why_not_billed(detail: str) -> str:
    """Return in words why a subscription was not billed: a reason, or an error without the name that Python gives it."""
    if detail in SUSPENDED:
        return SUSPENDED[detail]
    return NAME_OF_EXCEPTION.sub("", detail) if " " in detail else detail.replace("-", " ")


def outcome_words(run: Run) -> str:
    """Return the number of subscriptions per result, in a sentence."""
    return ", ".join(f"{words(name)} {number_text(value)}" for name, value in outcomes_of(run) if value)


def outcomes_of(row: Run) -> list[tuple[str, int]]:
    """Return the number of subscriptions for each result, in the order of the kinds."""
    counted = row.summary.get("outcomes", {})
    return [(kind.value, counted[kind.value]) for kind in RunOutcome if kind.value in counted]
