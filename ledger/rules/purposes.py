"""What the credits of a lot can pay for: certain rates, or certain values of a label. See docs/adr/0162."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from ledger.values import encode_json

RATES, LABELS = "rates", "labels"


class Use(NamedTuple):
    """What credits are used for: the rate that prices it, if any, and the metadata with its labels."""

    rate: str | None
    metadata: Mapping[str, Any]


class Purpose(NamedTuple):
    """What credits can pay for: a use with one of the rates, if there are any, and for each label with one of its values.

    Both are in the order of their texts.
    """

    rates: tuple[str, ...] = ()
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def covers(self, use: Use | None) -> bool:
        """Return whether the credits can pay for the use; None is a use for no certain thing, which they cannot."""
        if use is None or (self.rates and use.rate not in self.rates):
            return False
        return all(label_text(use.metadata.get(label)) in values for label, values in self.labels)

    def shown(self) -> dict[str, Any]:
        """Return it as requests and responses have it, without what is empty."""
        shown: dict[str, Any] = {RATES: list(self.rates)} if self.rates else {}
        return shown | ({LABELS: {label: list(values) for label, values in self.labels}} if self.labels else {})


def purpose_of(shown: Mapping[str, Any] | None) -> Purpose | None:
    """Return the purpose in the form of `shown`; None for credits that can pay for everything."""
    if not shown:
        return None
    labels = sorted((label, tuple(sorted(set(values)))) for label, values in shown.get(LABELS, {}).items())
    purpose = Purpose(tuple(sorted(set(shown.get(RATES, ())))), tuple(labels))
    return purpose if purpose.rates or purpose.labels else None


def label_text(value: Any) -> str:
    """A value of the metadata as a name; empty for a use that has no such label."""
    return "" if value is None else value if isinstance(value, str) else encode_json(value)


def encode_purpose(purpose: Purpose) -> str:
    """Return the stored and digested form: a JSON object as in `Purpose.shown`."""
    return orjson.dumps(purpose.shown()).decode()
