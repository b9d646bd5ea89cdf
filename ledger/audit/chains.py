"""Chains that other applications keep: the ledger's audit verifies them, and its anchor holds their heads.

The ledger knows of them only what is registered here, by the other application's `AppConfig.ready`: one anchor for both, and no
import from the ledger to whoever uses it.
"""

from dataclasses import dataclass
from typing import Final

from ledger.audit.laws import LAWS

MARK: Final = "@"
"""Begins a chain's name in an anchor, which no holder's id does."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A set of chained documents, each found by the name of its series and its number there.

    Args:
        name: of the chain, and of the law under which findings about it are reported.
        law: what holds of every document, in a sentence.
        heads: SQL that gives the last document of each series: series, number, digest as hexadecimal; in the order of bytes.
        found_at: SQL that takes series (text[]) and numbers (bigint[]) and gives, for each pair and in any order: series, number,
            the digest there as hexadecimal or null, and the last number of the series or null.
        broken: SQL that gives the documents whose digest is not the one that they must have: series, number, the digest that is
            stored and the one that it must be, as hexadecimal.
    """

    name: str
    law: str
    heads: str
    found_at: str
    broken: str


_CHAINS: Final[dict[str, Chain]] = {}


def register(chain: Chain) -> None:
    """Have the audit verify a chain, and every anchor hold its heads."""
    _CHAINS[chain.name] = chain


def registered() -> list[Chain]:
    """The chains of all applications, by name."""
    return [_CHAINS[name] for name in sorted(_CHAINS)]


def law(name: str) -> str:
    """What must hold, in a sentence: a law of the ledger, or of a registered chain."""
    return LAWS[name] if name in LAWS else _CHAINS[name].law
