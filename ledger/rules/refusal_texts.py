"""A refusal as a sentence, and what can be done about it: read off its code and facts, for people."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ledger.errors import REFUSALS, InsufficientCredits, Refused
from ledger.rules.credit_units import CreditUnit
from ledger.rules.kinds import KINDS
from ledger.rules.purpose_texts import purpose_words
from ledger.rules.rates import quantity_words
from ledger.values import Credits, annotations_of


class Remedy(NamedTuple):
    """One thing that would have let the request through.

    `action` is "grant", "release", "refund", "publish", or "" where nothing but the caller or the clock helps. `amount` is in the
    smallest unit, `sequence` names the entry that it is about.
    """

    action: str
    text: str
    amount: int | None = None
    sequence: int | None = None


def refusal_text(refusal: Mapping[str, Any], *, at: datetime, unit: CreditUnit) -> str:
    """Why the request was refused, as sentences with the numbers of the case.

    Args:
        refusal: `operation`, `code`, `facts` and `request`, as recorded.
        at: when it was recorded; times of the same day are written without their date.
        unit: of the account's credit type.
    """
    if refusal["code"] == InsufficientCredits.code:
        return _insufficient(refusal, at, unit)
    refused, facts = REFUSALS.get(refusal["code"]), refusal["facts"]
    if refused is None:
        return f"Refused: {refusal['code'].replace('-', ' ')}."
    text = next((text for name, value, text in refused.text_if if facts[name] == value), refused.text)
    return f"Refused: {_fill_text(refused, text, facts, unit, at)}"


def remedies(refusal: Mapping[str, Any], *, at: datetime, unit: CreditUnit) -> list[Remedy]:
    """What would have helped at that instant; empty where the request can only be given up.

    Args: as `refusal_text`.
    """
    refused, facts = REFUSALS.get(refusal["code"]), refusal["facts"]
    if refused is InsufficientCredits:
        return _remedies_for_insufficient(facts, at, unit)
    if refused is None or refused.remedy is None:
        return []
    action, text, amount = refused.remedy
    if not amount:
        return [Remedy(action, _fill_text(refused, text, facts, unit, at))]
    return [Remedy(action, _fill_text(refused, text, facts, unit, at), facts[amount], facts["sequence"])] if facts[amount] else []


def _fill_text(refused: type[Refused], text: str, facts: Mapping[str, Any], unit: CreditUnit, at: datetime) -> str:
    """Return the text with the facts; `over` is by how much the requested credits exceed those that there are."""
    counted = {name for name, declared in annotations_of(refused).items() if isinstance(declared.value, Credits)}
    filled = {name: _TextFact(value, unit if name in counted else None, at) for name, value in facts.items()}
    if facts.get("requested") is not None:
        rest = sum(facts[name] for name in counted - {"requested"})
        filled["over"] = _TextFact(facts["requested"] - rest, unit, at)
    return text.format(**filled)


class _TextFact(NamedTuple):
    """A fact in a text: credits as a number, with their unit, or as their verb; a kind of entry; anything else as it is.

    A subject or a time that may be null is written with its preposition, or not at all.
    """

    value: Any
    unit: CreditUnit | None
    at: datetime

    def __format__(self, how: str) -> str:
        if self.unit is not None:
            return self._of_unit(self.unit, how)
        if how == "a kind":
            words = KINDS[self.value].words
            return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"
        if how == "of":
            return f" of {self.value}" if self.value else ""
        if how == "until":
            return f" {_time_words(_instant(self.value), self.at, 'until')}" if self.value else ""
        if how == "at":
            return f" {_time_words(_instant(self.value), self.at, 'on')}" if self.value else ""
        return format(self.value, how)

    def _of_unit(self, unit: CreditUnit, how: str) -> str:
        match how:
            case "credits":
                return unit.amount(self.value)
            case "are":
                return are(self.value, unit)
        return unit.number(self.value)


def when(instant: datetime, *, at: datetime) -> str:
    """The instant as seen from `at`, in its zone: "21:34" on the same day, else "1 Jan", with the year where it is another."""
    instant = instant.astimezone(at.tzinfo)
    if instant.date() == at.date():
        return f"{instant:%H:%M}"
    day = f"{instant.day} {instant:%b}"
    near = instant.year == at.year or abs((instant - at).days) < 180
    return day if near else f"{day} {instant.year}"


# Not enough credits ----------------------------------------------------------------------------------


def _insufficient(refusal: Mapping[str, Any], at: datetime, unit: CreditUnit) -> str:
    facts = refusal["facts"]
    requested = f"{unit.number(facts['requested'])} requested{_rating_text(refusal['request'], unit)}"
    if refusal["operation"] == "capture":
        spendable = f"{unit.number(facts['available'])} held and spendable"
    else:
        spendable = f"{unit.number(facts['available'])} spendable"
    why = [part for part in (_held_text(facts, at, unit), _coming(facts, at, unit), _expired_text(facts, at, unit)) if part]
    why += [
        f"{unit.number(each['available'])} {are(each['available'], unit)} {purpose_words(each['applies_to'])}"
        for each in facts.get("for_other_things") or []
    ]
    sentences = [f"Refused: {requested}, {spendable}."]
    if why:
        sentences.append(f"{', '.join(why)}.")
    sentences.append(f"Short by {unit.number(facts['shortfall'])}.")
    return " ".join(sentences)


def _rating_text(request: Mapping[str, Any], unit: CreditUnit) -> str:
    if not request.get("rate"):
        return ""
    return f" for {quantity_words(request)} of {request['rate']}"


def _open_holds(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [hold for hold in facts.get("holds") or [] if hold["state"] == "open"]


def _held_text(facts: Mapping[str, Any], at: datetime, unit: CreditUnit) -> str:
    """The credits that open holds set aside. An expired hold sets nothing aside, even before its expiry is booked."""
    ended = sum(hold["amount"] for hold in facts.get("holds") or [] if hold["state"] != "open")
    held = (facts.get("held") or 0) - ended
    if held <= 0:
        return ""
    until = _times([hold["expires_at"] for hold in _open_holds(facts)], at, "until")
    return f"{unit.number(held)} {are(held, unit)} held{until}"


def _coming(facts: Mapping[str, Any], at: datetime, unit: CreditUnit) -> str:
    coming = facts.get("not_yet_effective") or 0
    if not coming:
        return ""
    times = [lot["effective_at"] for lot in facts.get("lots") or [] if lot["state"] == "not_yet_effective"]
    later = "" if len(set(times)) == 1 else " later"
    return f"{unit.number(coming)} {'starts' if unit.is_one(coming) else 'start'}{later}{_times(times, at, 'on')}"


def _expired_text(facts: Mapping[str, Any], at: datetime, unit: CreditUnit) -> str:
    expired = facts.get("expired") or 0
    if not expired:
        return ""
    times = [lot["expires_at"] for lot in facts.get("lots") or [] if lot["state"] == "expired"]
    return f"{unit.number(expired)} expired{_times(times, at, 'on')}"


def _times(times: Sequence[str | None], at: datetime, word: str) -> str:
    """The one time with the word before it; of several the first; nothing where none is known."""
    known = sorted({_instant(time) for time in times if time})
    if not known:
        return ""
    return f"{', the first' if len(known) > 1 else ''} {_time_words(known[0], at, word)}"


def _time_words(instant: datetime, at: datetime, word: str) -> str:
    words = when(instant, at=at)
    return f"{'at' if word == 'on' and ':' in words else word} {words}"


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def are(amount: int, unit: CreditUnit) -> str:
    """The verb behind an amount: "1 is", "2 are", "1.00 are"."""
    return "is" if unit.is_one(amount) else "are"


def _remedies_for_insufficient(facts: Mapping[str, Any], at: datetime, unit: CreditUnit) -> list[Remedy]:
    found = [Remedy("grant", f"Grant {unit.amount(facts['shortfall'])}", facts["shortfall"])]
    for hold in _open_holds(facts):
        until = _time_words(_instant(hold["expires_at"]), at, "until")
        words = f"Release hold #{hold['hold']}: {unit.number(hold['amount'])} {until}"
        found.append(Remedy("release", words, hold["amount"], hold["hold"]))
    sufficient_at = facts.get("earliest_sufficient_at")
    if sufficient_at:
        words = f"Wait: enough is spendable {_time_words(_instant(sufficient_at), at, 'on')} if nothing else is spent"
        found.append(Remedy("", words))
    return found
