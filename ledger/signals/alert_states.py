"""What an alert knows of an account, and what follows from its next state. Pure.

Note [Once per crossing]
    The state of an account is decided entry by entry, in their order, so that a balance that was low and recovered between two
    looks gives both signals. An account that is low is not low again before it has recovered. A lot that was reported is not
    reported again while it is open.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ledger.rules.accounts import AccountState
from ledger.rules.budget_windows import HOUR_US, ROLLING, oldest_of, step_of
from ledger.rules.entries import Entry
from ledger.rules.instants import to_text
from ledger.signals.types import DEPLETED, EXPIRING, LOW, RECOVERED

BELOW, BELOW_PERCENT, DAYS_LEFT, EXPIRING_DAYS = "below", "below_percent", "days_left", "expiring_days"
KINDS: Final = (BELOW, BELOW_PERCENT, DAYS_LEFT, EXPIRING_DAYS)
"""What an alert compares, by the field that declares it."""
DAY_HOURS: Final = 24
DAY_US: Final = DAY_HOURS * HOUR_US
GIVING: Final = frozenset({"grant", "transfer_in"})
"""The kinds of entries after which a percentage starts over."""
LOTS_SHOWN: Final = 100


class DeclaredAlert(NamedTuple):
    """An alert as it is declared; of `KINDS`, exactly one has a value."""

    id: int
    name: str
    holder_id: str | None
    credit_type: str | None
    below: int | None
    below_percent: int | None
    days_left: int | None
    rate_days: int | None
    expiring_days: int | None
    recorded_us: int

    @property
    def kind(self) -> str:
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def limit(self) -> int:
        """The value of its kind."""
        limit: int = getattr(self, self.kind)
        return limit

    @property
    def rank(self) -> tuple[bool, bool]:
        """Of several alerts of a name, the one with the highest rank watches an account."""
        return self.holder_id is not None, self.credit_type is not None

    def watches(self, holder_id: str, credit_type: str) -> bool:
        return self.holder_id in (None, holder_id) and self.credit_type in (None, credit_type)


class AlertState(NamedTuple):
    """What is known of an account for an alert. `facts` are what the next decision of its kind needs."""

    kind: str
    is_crossed: bool = False
    is_depleted: bool = False
    crossings: int = 0
    crossed_us: int | None = None
    facts: Mapping[str, Any] = {}
    look_us: int | None = None
    """When time alone may change it."""


class AlertSignal(NamedTuple):
    """A signal to make, with its data."""

    type: str
    data: dict[str, Any]


Judged = tuple[AlertState, list[AlertSignal]]


def judge(alert: DeclaredAlert, state: AlertState, account: AccountState, entry: Entry | None = None) -> Judged:
    """Return what is known after the account's next state, and the signals of what it crossed.

    Args:
        account: as of its last entry, at the instant of that entry or later.
        entry: that entry, if this is the first look at it.
    """
    if alert.kind == EXPIRING_DAYS:
        return _judge_expiring(alert, state, account)
    facts = _next_facts(alert, state.facts, account, entry)
    is_low = _is_low(alert, facts, account.available)
    types, state = _transition(state._replace(facts=facts), is_low=is_low, is_empty=account.available == 0, now_us=account.now_us)
    compared = _compare_facts(alert, facts)
    signals = [AlertSignal(name, _data(alert, state, account) | compared) for name in types]
    return state._replace(look_us=_next_look(alert, state, account)), signals


def _transition(state: AlertState, *, is_low: bool, is_empty: bool, now_us: int) -> tuple[list[str], AlertState]:
    types: list[str] = []
    if is_low and not state.is_crossed:
        types.append(LOW.name)
        state = state._replace(is_crossed=True, crossings=state.crossings + 1, crossed_us=now_us)
    elif state.is_crossed and not is_low:
        types.append(RECOVERED.name)
        state = state._replace(is_crossed=False, is_depleted=False)
    if is_empty and not state.is_depleted:
        types.append(DEPLETED.name)
        state = state._replace(is_depleted=True)
    return types, state


def _is_low(alert: DeclaredAlert, facts: Mapping[str, Any], available: int) -> bool:
    """Whether the account is low; one that has nothing to spend always is."""
    if alert.kind == BELOW:
        least = alert.limit
        return available < least
    if alert.kind == BELOW_PERCENT:
        return available == 0 or available * 100 < alert.limit * facts["most"]
    spent = sum(amount for _, amount in facts["spent"])
    return available == 0 or available * (alert.rate_days or 1) < alert.limit * spent


def _next_facts(alert: DeclaredAlert, facts: Mapping[str, Any], account: AccountState, entry: Entry | None) -> Mapping[str, Any]:
    if alert.kind == BELOW_PERCENT:
        starts_over = entry is not None and entry.kind in GIVING
        return {"most": account.available if starts_over else max(account.available, facts.get("most", 0))}
    if alert.kind == DAYS_LEFT:
        return {"spent": _spent_in_steps(alert, facts.get("spent", ()), account.now_us, entry)}
    return {}


def _spent_in_steps(alert: DeclaredAlert, steps: Any, now_us: int, entry: Entry | None = None) -> list[list[int]]:
    """Return what was spent in the window of the rate, by its 24 steps, as [start in microseconds, credits]."""
    hours = (alert.rate_days or 1) * DAY_HOURS
    spent: dict[int, int] = dict(steps)
    if entry is not None and entry.taken:
        start = step_of(ROLLING, hours, "UTC", now_us)
        spent[start] = spent.get(start, 0) + entry.taken
    oldest_us = oldest_of(ROLLING, hours, "UTC", now_us)
    return [[start, amount] for start, amount in sorted(spent.items()) if start >= oldest_us]


def _compare_facts(alert: DeclaredAlert, facts: Mapping[str, Any]) -> dict[str, Any]:
    if alert.kind == BELOW_PERCENT:
        return {"most_since_grant": facts["most"]}
    if alert.kind == DAYS_LEFT:
        return {"rate_days": alert.rate_days, "spent": sum(amount for _, amount in facts["spent"])}
    return {}


def _data(alert: DeclaredAlert, state: AlertState, account: AccountState) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "holder_id": account.holder_id,
        "credit_type": account.credit_type,
        "crossing": state.crossings,
        "available": account.available,
        "balance": account.balance,
        "sequence": account.sequence,
        "as_of": to_text(account.now_us),
        alert.kind: alert.limit,
    }


def _next_look(alert: DeclaredAlert, state: AlertState, account: AccountState) -> int | None:
    """When the available credits, or the rate of an account that is low, change without an entry."""
    instants = [lot.effective_us for lot in account.lots] + [lot.expires_us for lot in account.lots_and_held_parts]
    instants += [hold.expires_us for hold in account.holds]
    later = [instant for instant in instants if instant is not None and instant > account.now_us]
    if alert.kind == DAYS_LEFT and state.is_crossed and account.available:
        later.append(account.now_us + HOUR_US)
    return min(later, default=None)


# Credits that expire ---------------------------------------------------------------------------------


def _judge_expiring(alert: DeclaredAlert, state: AlertState, account: AccountState) -> Judged:
    """Report each lot once, when its expiry comes within the days of the alert, or when it is granted within them."""
    now_us, ahead_us = account.now_us, alert.limit * DAY_US
    expires: dict[int, int] = {}
    left: dict[int, int] = {}
    for lot in account.lots_and_held_parts:
        if lot.expires_us is not None and lot.expires_us > now_us:
            expires[lot.grant] = lot.expires_us
            left[lot.grant] = left.get(lot.grant, 0) + lot.remaining
    near = sorted((expires_us, grant) for grant, expires_us in expires.items() if expires_us - ahead_us <= now_us)
    reported = set(state.facts.get("reported", ()))
    fresh = [(expires_us, grant) for expires_us, grant in near if grant not in reported]
    starts = [expires_us - ahead_us for expires_us in expires.values() if expires_us - ahead_us > now_us]
    state = state._replace(
        is_crossed=bool(near),
        facts={"reported": sorted(grant for _, grant in near)} if near else {},
        look_us=min([*starts, *(expires_us for expires_us, _ in near)], default=None),
    )
    if not fresh:
        return state, []
    state = state._replace(crossings=state.crossings + 1, crossed_us=now_us)
    lots = [{"grant": grant, "remaining": left[grant], "expires_at": to_text(expires_us)} for expires_us, grant in fresh]
    data = {"amount": sum(left[grant] for _, grant in fresh), "expires_at": lots[0]["expires_at"], "lots": lots[:LOTS_SHOWN]}
    return state, [AlertSignal(EXPIRING.name, _data(alert, state, account) | data)]
