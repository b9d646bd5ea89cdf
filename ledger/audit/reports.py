"""The report of an audit: counts, sums and findings."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from ledger.audit.chains import law as sentence
from ledger.rules.kinds import TOTALS


class Finding(NamedTuple):
    """One violation of one law. `sequence` is None if no single entry is at fault, `holder_id` if no single holder is."""

    law: str
    holder_id: str | None
    credit_type: str | None
    sequence: int | None
    found: str
    expected: str

    def __str__(self) -> str:
        where = "/".join(str(part) for part in self[1:4] if part is not None) or "all accounts"
        return f"{where}: found {self.found}, expected {self.expected}"


@dataclass
class Identity:
    """The accounting identity of one credit type, summed over the audited accounts. `totals` are those of
    `ledger.rules.kinds`. Only `balance` can be below 0.
    """

    credit_type: str
    totals: Counter[str] = field(default_factory=Counter)
    balance: int = 0
    held: int = 0

    @property
    def came_in(self) -> int:
        return sum(self.totals[name] for name, sign in TOTALS.items() if sign > 0)

    @property
    def explained(self) -> int:
        return self.balance + self.held + sum(self.totals[name] for name, sign in TOTALS.items() if sign < 0)

    def as_json(self) -> dict[str, Any]:
        """The sums as plain JSON values."""
        totals = {name: self.totals[name] for name in TOTALS}
        return {"credit_type": self.credit_type, **totals, "balance": self.balance, "held": self.held}

    def __str__(self) -> str:
        came = {name: self.totals[name] for name, sign in TOTALS.items() if sign > 0}
        went = {"balance": self.balance, "held": self.held}
        went |= {name: self.totals[name] for name, sign in TOTALS.items() if sign < 0}
        verdict = "" if self.came_in == self.explained else "  DOES NOT HOLD"
        return f"{self.credit_type}: {_join_amounts(came)} = {_join_amounts(went)}{verdict}"


def _join_amounts(amounts: Mapping[str, int]) -> str:
    shown = {name: value for name, value in amounts.items() if value or name in {"granted", "balance", "spent"}}
    return " + ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in shown.items())


@dataclass
class Report:
    """The outcome of an audit. `findings` lists at most `findings_kept` per law, `totals` counts all of them by law."""

    as_of: datetime
    holder_id: str | None = None
    findings_kept: int = 100
    holders: int = 0
    accounts: int = 0
    entries: int = 0
    refusals: int = 0
    seconds: float = 0.0
    identities: dict[str, Identity] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)
    anchor: dict[str, Any] | None = None
    chains: dict[str, int] = field(default_factory=dict)
    """For each chain of another application, the number of series that were verified."""

    @property
    def is_clean(self) -> bool:
        return not self.totals

    @property
    def entries_per_second(self) -> float:
        return self.entries / self.seconds if self.seconds else 0.0

    def add(self, findings: Iterable[Finding]) -> None:
        """Count all findings, and keep the first `findings_kept` of each law."""
        for finding in findings:
            self.totals[finding.law] += 1
            if self.totals[finding.law] <= self.findings_kept:
                self.findings.append(finding)

    def identity(self, credit_type: str) -> Identity:
        """Return the sums of a credit type; the first call makes them, all 0."""
        return self.identities.setdefault(credit_type, Identity(credit_type))

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {
            "as_of": self.as_of.isoformat().replace("+00:00", "Z"),
            "holder_id": self.holder_id,
            "clean": self.is_clean,
            "holders": self.holders,
            "accounts": self.accounts,
            "entries": self.entries,
            "refusals": self.refusals,
            "seconds": round(self.seconds, 3),
            "entries_per_second": round(self.entries_per_second),
            "identities": [identity.as_json() for _, identity in sorted(self.identities.items())],
            "findings": {
                "total": self.totals.total(),
                "by_law": dict(sorted(self.totals.items())),
                "listed": [finding._asdict() for finding in self.findings],
            },
            "anchor": self.anchor,
            "chains": self.chains,
        }

    def as_text(self) -> str:
        """Return the report as text for a person, with the findings at the end."""
        what = f"holder {self.holder_id}" if self.holder_id else f"{self.holders:,} holders"
        first = (
            f"Audit of {what} as of {self.as_of:%Y-%m-%d %H:%M:%S} UTC: {self.accounts:,} accounts, {self.entries:,} entries, "
        )
        first += f"{self.refusals:,} of them refusals, in {self.seconds:.1f} s ({self.entries_per_second:,.0f} entries/s)."
        lines = [first, *(f"  {identity}" for _, identity in sorted(self.identities.items()))]
        lines += [f"  {name}: {count} series verified" for name, count in sorted(self.chains.items()) if count]
        if self.anchor:
            lines.append("  anchor " + ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in self.anchor.items()))
        lines.append("Clean: no violations found." if self.is_clean else self._findings_as_text())
        return "\n".join(lines)

    def _findings_as_text(self) -> str:
        lines = [f"{self.totals.total():,} findings:"]
        for law, count in sorted(self.totals.items()):
            lines.append(f"  {law} ({count:,}): {sentence(law)}")
            lines += [f"    {finding}" for finding in self.findings if finding.law == law]
            if count > self.findings_kept:
                lines.append(f"    … and {count - self.findings_kept:,} more")
        return "\n".join(lines)
