"""What an operation would do, by the dry run of its use-case: balance and available before and after, and the lots it touches."""

from collections.abc import Callable
from typing import Any

from django.utils import timezone

from ledger import reads
from ledger.admin.kit.cells import instant_words
from ledger.admin.kit.idempotent_forms import DryRun
from ledger.reads import Balance
from ledger.rules import Account, Entry, Lot
from ledger.rules.instants import from_us, to_us
from ledger.rules.texts.credit_units import CreditUnit
from ledger.rules.texts.entry_texts import entry_text
from ledger.units import unit_of

LOTS_TOLD = 5


def dry_run_of(use_case: Callable[..., Entry]) -> Callable[..., DryRun]:
    """The use-case, run dry and reported. It raises what the use-case would raise, and nothing is written or recorded."""

    def dry_run(**asked: Any) -> DryRun:
        entry = use_case(**asked, dry_run=True)
        before = reads.balance(entry.holder_id, entry.credit_type)
        return described(entry, before, unit_of(entry.credit_type))

    return dry_run


def described(entry: Entry, before: Balance, unit: CreditUnit) -> DryRun:
    """The entry that would be written, described from the account as it is now."""
    now = timezone.now()
    after = Account(entry.holder_id, entry.credit_type, to_us(now)).after(entry)
    text = entry_text(entry, at=now, unit=unit).text
    first = f"{text[0].upper()}{text[1:]}, for {entry.holder_id} ({unit.name})."
    return DryRun(
        sentences=[first, *_amount_in_full(entry, unit), *_lots(entry, before, unit)],
        changes=[
            ("Balance", unit.number(before.balance), unit.number(entry.balance)),
            ("Available", unit.number(before.available), unit.number(after.available)),
            *_changed("Held", before.held, entry.held, unit),
            *_changed("Owed", before.owed, after.owed, unit),
            *_changed("Overdraft limit", before.overdraft, entry.overdraft or 0, unit),
        ],
    )


def _changed(name: str, before: int, after: int, unit: CreditUnit) -> list[tuple[str, str, str]]:
    return [] if before == after else [(name, unit.number(before), unit.number(after))]


def _amount_in_full(entry: Entry, unit: CreditUnit) -> list[str]:
    """The amount as the API shows it, where pages show it with decimals."""
    if not unit.scale or not entry.amount:
        return []
    return [f"The API shows {unit.amount(abs(entry.amount))} as {abs(entry.amount)}."]


def _lots(entry: Entry, before: Balance, unit: CreditUnit) -> list[str]:
    """Which lots would change, and until when they last."""
    sentences = [_opened(lot, unit) for lot in entry.lots if lot.grant == entry.sequence]
    known = {lot.grant: lot for lot in (*entry.lots, *before.lots)}
    verb = "from" if entry.amount < 0 else "back to"
    for grant, amount in entry.drawn[:LOTS_TOLD]:
        if grant != entry.sequence:
            sentences.append(f"{unit.number(amount)} {verb} lot #{grant}{_until(known.get(grant))}.")
    if len(entry.drawn) > LOTS_TOLD:
        sentences.append(f"And {len(entry.drawn) - LOTS_TOLD} more lots.")
    return sentences


def _opened(lot: Lot, unit: CreditUnit) -> str:
    starts = "" if lot.effective_us == 0 else f", usable from {instant_words(from_us(lot.effective_us))}"
    return f"A new {lot.source} lot of {unit.number(lot.remaining)}{starts}{_until(lot)}."


def _until(lot: Lot | None) -> str:
    if lot is None:
        return ""
    return ", which never expires" if lot.expires_at is None else f", which expires {instant_words(lot.expires_at)}"
