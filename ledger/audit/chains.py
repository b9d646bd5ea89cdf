"""Chains of other applications: the ledger's audit verifies them, and its anchor holds their last digests.

An application registers its chains in `AppConfig.ready`. So one anchor covers both, and the ledger imports no application.
"""

from dataclasses import dataclass
from typing import Final

from ledger.audit.laws import LAWS

MARK: Final = "@"
"""The prefix of a chain's name in an anchor. No holder's id begins with it."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A set of chained documents, each found by the name of its series and its number there.

    Args:
        name: the name of the chain, and of the law under which its findings are reported.
        law: what must hold for every document, in a sentence.
        heads: SQL that returns the last document of each series: series, number, digest as hexadecimal; in the order of bytes.
        found_at: SQL that takes series (text[]) and numbers (bigint[]) and returns for each pair, in any order: series, number,
            the digest there as hexadecimal or null, and the last number of the series or null.
        broken: SQL that returns the documents whose digest is wrong: series, number, the stored digest and the right one, as
            hexadecimal.
    """

    name: str
    law: str
    heads: str
    found_at: str
    broken: str


_CHAINS: Final[dict[str, Chain]] = {}


def register(chain: Chain) -> None:
    """Let the audit verify a chain, and let every anchor hold the last document of each of its series."""
    _CHAINS[chain.name] = chain


def registered() -> list[Chain]:
    """Return the chains of all applications, sorted by name."""
    return [_CHAINS[name] for name in sorted(_CHAINS)]


def law(name: str) -> str:
    """Return the sentence of a law: one of the ledger's, or that of a registered chain."""
    return LAWS[name] if name in LAWS else _CHAINS[name].law
