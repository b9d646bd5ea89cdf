"""The first page about use: which models used the credits, and which groups of holders, among the newest entries."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ledger.operators import additions
from ledger.operators.additions import Chart
from ledger.rules.credit_units import CreditUnit
from ledger.staff.home_reads import ENTRIES_LOOKED_AT, Lately
from ledger.staff.kit import charts as look
from ledger.typesetting.languages import ENGLISH
from ledger.units import unit_of

SHOWN: Final = 8
HOLDERS_GROUPED: Final = 200
NO_MODEL: Final = "other"
NO_GROUP: Final = "no {}"


def charts(request: Any, lately: Lately) -> list[Chart]:
    """Return a chart of use by model, and one for each kind of groups, of the credit type with most uses; none without any."""
    if not lately.by_model or lately.since is None:
        return []
    chosen = _most_used(lately)
    unit, since = unit_of(chosen), ENGLISH.day(lately.since.date())
    found = []
    models = Counter({model or NO_MODEL: used for model, used in lately.by_model[chosen].items()})
    if set(models) != {NO_MODEL}:
        found.append(_chart("Use by model", models, unit, since))
    holders = lately.by_holder[chosen].most_common(HOLDERS_GROUPED)
    for title, groups in additions.holder_groups(request, [holder_id for holder_id, _ in holders]).items():
        if groups:
            found.append(_chart(f"Use by {title}", _sum_by_group(holders, groups, NO_GROUP.format(title)), unit, since))
    return found


def _most_used(lately: Lately) -> str:
    """Return the credit type that most accounts use, because amounts of different types cannot be compared."""
    return max(lately.by_holder, key=lambda credit_type: (len(lately.by_holder[credit_type]), credit_type))


def _sum_by_group(holders: Iterable[tuple[str, int]], groups: Mapping[str, str], without: str) -> Counter[str]:
    sums: Counter[str] = Counter()
    for holder_id, used in holders:
        sums[groups.get(holder_id, without)] += used
    return sums


def _chart(title: str, used: Counter[str], unit: CreditUnit, since: str) -> Chart:
    shown, whole = used.most_common(SHOWN), used.total()
    words = "; ".join(f"{name} {unit.number(amount)} ({amount / whole:.0%})" for name, amount in shown)
    return Chart(
        title=title,
        text=f"{unit.name} since {since}, in the newest {ENTRIES_LOOKED_AT:,} entries: {words}.",
        data=look.data([name for name, _ in shown], look.bars("Used", [amount / 10**unit.scale for _, amount in shown])),
        options=look.options(unit=unit.unit, decimals=unit.scale, is_lying=True),
    )
