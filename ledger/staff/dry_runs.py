"""The effect of an operation, by the dry run of its use-case: balance and available before and after, and the changed lots."""

from dataclasses import replace
from typing import TypeVar

from django.utils import timezone

from ledger import reads
from ledger.reads import Balance
from ledger.records import UseCase
from ledger.rules.accounts import AccountState
from ledger.rules.credit_units import CreditUnit
from ledger.rules.entries import Entry
from ledger.rules.entry_texts import entry_text
from ledger.rules.instants import from_us, to_us
from ledger.rules.lots import Lot
from ledger.rules.purpose_texts import purpose_words
from ledger.rules.requests import Request
from ledger.staff.kit.cells import instant_words
from ledger.staff.kit.idempotent_forms import DryRun
from ledger.units import unit_of

RequestT = TypeVar("RequestT", bound=Request)
LOTS_SHOWN = 5


def dry_run_of(use_case: UseCase[..., RequestT, Entry], request: RequestT) -> DryRun:
    """Run the use-case dry and report it. It raises what the use-case would raise; nothing is written or recorded."""
    entry = use_case.execute(replace(request, dry_run=True))
    before = reads.balance(entry.holder_id, entry.credit_type)
    return described(entry, before, unit_of(entry.credit_type))


def described(entry: Entry, before: Balance, unit: CreditUnit) -> DryRun:
    """Describe the entry that would be written, from the current account."""
    now = timezone.now()
    after = AccountState(entry.holder_id, entry.credit_type, to_us(now)).after(entry)
    text = entry_text(entry, at=now, unit=unit).text
    first = f"{text[0].upper()}{text[1:]}, for {entry.holder_id} ({unit.name})."
    return DryRun(
        sentences=[first, *_amount_in_full(entry, unit), *_lots(entry, before, unit)],
        changes=[
            ("Balance", unit.number(before.balance), unit.number(entry.balance)),
            ("Available", unit.number(before.available), unit.number(after.available)),
            *_list_change("Held", before.held, entry.held, unit),
            *_list_change("Owed", before.owed, after.owed, unit),
            *_list_change("Overdraft limit", before.overdraft, entry.overdraft or 0, unit),
        ],
    )


def _list_change(name: str, before: int, after: int, unit: CreditUnit) -> list[tuple[str, str, str]]:
    return [] if before == after else [(name, unit.number(before), unit.number(after))]


def _amount_in_full(entry: Entry, unit: CreditUnit) -> list[str]:
    """Return the amount in the API's form, if pages show it with decimals."""
    if not unit.scale or not entry.amount:
        return []
    return [f"The API shows {unit.amount(abs(entry.amount))} as {abs(entry.amount)}."]


def _lots(entry: Entry, before: Balance, unit: CreditUnit) -> list[str]:
    """Describe the lots that would change, with their expiry."""
    sentences = [_describe_lot(lot, unit) for lot in entry.lots if lot.grant == entry.sequence]
    known = {lot.grant: lot for lot in (*entry.lots, *before.lots)}
    verb = "from" if entry.amount < 0 else "back to"
    for grant, amount in entry.drawn[:LOTS_SHOWN]:
        if grant != entry.sequence:
            sentences.append(f"{unit.number(amount)} {verb} lot #{grant}{_until(known.get(grant))}.")
    if len(entry.drawn) > LOTS_SHOWN:
        sentences.append(f"And {len(entry.drawn) - LOTS_SHOWN} more lots.")
    return sentences


def _describe_lot(lot: Lot, unit: CreditUnit) -> str:
    starts = "" if lot.effective_us == 0 else f", usable from {instant_words(from_us(lot.effective_us))}"
    purpose = "" if lot.applies_to is None else f", {purpose_words(lot.applies_to.shown())}"
    return f"A new {lot.source} lot of {unit.number(lot.remaining)}{purpose}{starts}{_until(lot)}."


def _until(lot: Lot | None) -> str:
    if lot is None:
        return ""
    return ", which never expires" if lot.expires_at is None else f", which expires {instant_words(lot.expires_at)}"
