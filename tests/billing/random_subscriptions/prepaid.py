"""A second opinion on usage paid in credits with an allowance: each month billed in time, credit by credit.

Written from the conventions: a month's allowance covers that month's usage, before what was bought; without a cap it lapses
a month after its month, with one so much of what is unspent goes along. It knows no runs: each month is billed at its end.
"""

from dataclasses import dataclass, field


@dataclass
class Purse:
    """What a holder has: of each month's allowance, and bought."""

    allowance: int
    cap: int | None
    bought: int
    months: dict[int, int] = field(default_factory=dict)
    """What is unspent of the allowance of a month."""

    def begin(self, month: int) -> None:
        """A month's allowance is given; what is older lapses, or all that is beyond the cap, the oldest first."""
        if self.cap is None:
            self.months = {old: left for old, left in self.months.items() if old == month - 1}
        for old in sorted(self.months):
            beyond = 0 if self.cap is None else sum(self.months.values()) - self.cap
            self.months[old] -= max(min(self.months[old], beyond), 0)
        self.months[month] = self.allowance

    def take(self, wanted: int, month: int) -> int:
        """Credits for the usage of a month at its end, as many as there are; the oldest first, what was bought last."""
        if self.cap is None:
            self.months = {old: left for old, left in self.months.items() if old == month}
        taken = 0
        for old in sorted(self.months):
            part = min(self.months[old], wanted - taken)
            self.months[old] -= part
            taken += part
        part = min(self.bought, wanted - taken)
        self.bought -= part
        return taken + part

    def pay(self, due: int) -> int:
        """Credits for an invoice, one a cent, as many as there are; the oldest first, what was bought last."""
        paid = min(due, self.available)
        left = paid
        for old in sorted(self.months):
            part = min(self.months[old], left)
            self.months[old] -= part
            left -= part
        self.bought -= left
        return paid

    @property
    def available(self) -> int:
        return sum(self.months.values()) + self.bought


def billed_in_time(purse: Purse, used: list[int], price_minor: int) -> list[tuple[int, int]]:
    """Credits and money of each month's usage, one credit a unit, when every month is billed before the next one's usage."""
    lines = []
    for month, units in enumerate(used):
        purse.begin(month)
        covered = purse.take(units, month)
        lines.append((covered, (units - covered) * price_minor))
    purse.begin(len(used))
    return lines


def paid_in_time(purse: Purse, used: list[int], price_minor: int, fee_minor: int) -> list[tuple[int, int]]:
    """Total of each month's invoice, with the fee of the next month in advance, and what credits pay of it.

    Each month's usage is covered and its invoice paid before the allowance of the next month is given.
    """
    made = []
    for month in range(len(used) + 1):
        money = 0
        if month:
            units = used[month - 1]
            money = (units - purse.take(units, month - 1)) * price_minor
        made.append((money + fee_minor, purse.pay(money + fee_minor)))
        purse.begin(month)
    return made
