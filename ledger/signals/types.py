"""The types of signals: one row for each. Other applications add theirs by `register` in their `AppConfig.ready`."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from ledger.rules.entries import Entry
from ledger.rules.overage import Overage
from ledger.values import InvalidValue, Value, json_name


class SignalType(NamedTuple):
    """A type of signals.

    Args:
        name: what receivers see as `type`.
        text: when it is sent, for people.
        is_chosen: webhooks choose whether they get it.
    """

    name: str
    text: str
    is_chosen: bool = True


ENTRY_RECORDED: Final = SignalType("entry.recorded", "An entry was recorded, of any kind except a refusal.")
REFUSAL_RECORDED: Final = SignalType("refusal.recorded", "A request was refused, and the refusal recorded.")
HOLD_EXPIRED: Final = SignalType("hold.expired", "A hold expired, and the ledger released what was left of it.")
LOW: Final = SignalType("balance.low", "An account became low by an alert.")
RECOVERED: Final = SignalType("balance.recovered", "An account that was low by an alert is not low any more.")
DEPLETED: Final = SignalType("balance.depleted", "An account that an alert watches has nothing left to spend.")
EXPIRING: Final = SignalType("credits.expiring", "Credits expire within the days of an alert.")
BUDGET_EXCEEDED: Final = SignalType(
    "budget.exceeded", "A soft budget was exceeded, or a hard one refused a request; once for each window and subject."
)
OVERAGE_STARTED: Final = SignalType("overage.started", "An account used the first credits of a period on overage.")
OVERAGE_NEAR_LIMIT: Final = SignalType("overage.near_limit", "An account reached 80 % of the limit of its overage.")
OVERAGE_LIMIT_REACHED: Final = SignalType("overage.limit_reached", "An account reached the limit of its overage.")
PING: Final = SignalType("webhook.ping", "Somebody asked for a test of the webhook.", is_chosen=False)

_types: Final[dict[str, SignalType]] = {
    each.name: each
    for each in (
        ENTRY_RECORDED,
        REFUSAL_RECORDED,
        HOLD_EXPIRED,
        LOW,
        RECOVERED,
        DEPLETED,
        EXPIRING,
        BUDGET_EXCEEDED,
        OVERAGE_STARTED,
        OVERAGE_NEAR_LIMIT,
        OVERAGE_LIMIT_REACHED,
        PING,
    )
}


def register(*types: SignalType) -> None:
    """Add types of another application."""
    _types.update({each.name: each for each in types})


def all_types() -> tuple[SignalType, ...]:
    """Return every type, in the order of their declaration."""
    return tuple(_types.values())


def types_of(entry: Entry) -> Iterator[str]:
    """Yield the names of the types that an entry is a cause of."""
    if entry.kind == "refusal":
        yield REFUSAL_RECORDED.name
        return
    yield ENTRY_RECORDED.name
    # A request's release has the request's key.
    if entry.kind == "release" and entry.idempotency_key is None:
        yield HOLD_EXPIRED.name
    if entry.kind == "grant" and entry.postpaid and entry.overage is not None:
        yield from _reached_types(entry.overage, entry.overage.used - entry.postpaid)


def _reached_types(overage: Overage, used_before: int) -> Iterator[str]:
    """Yield what a grant on overage has reached that had not been reached before it."""
    if used_before == 0:
        yield OVERAGE_STARTED.name
    if overage.limit:
        if 5 * used_before < 4 * overage.limit <= 5 * overage.used:
            yield OVERAGE_NEAR_LIMIT.name
        if used_before < overage.limit <= overage.used:
            yield OVERAGE_LIMIT_REACHED.name


class TypeName(Value):
    """The name of a type that webhooks choose. Names are looked up when a value is read: applications add some at their start."""

    @property
    def choices(self) -> tuple[str, ...]:
        return tuple(each.name for each in all_types() if each.is_chosen)

    def read(self, value: Any) -> str:
        if type(value) is not str:
            raise InvalidValue("not-a-string", f"This must be a string, not {json_name(value)}.")
        if value not in self.choices:
            raise InvalidValue("not-a-choice", f"This must be one of {', '.join(self.choices)}.")
        return value

    def openapi(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.choices)}


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names, each once, in the order of the types' declaration."""
    given = set(names)
    return [name for name in _types if name in given]
