"""Who issues statements, and in which language their reader reads: what another application knows and registers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Letterhead:
    """What a statement says of its issuer.

    Args:
        name, line: of the issuer; the line has the address.
        footer: columns of lines, in the language of the statement.
        language: of the statement, BCP 47.
    """

    name: str = ""
    line: str = ""
    footer: Sequence[Sequence[str]] = ()
    language: str = "en"


FindLetterhead = Callable[[str, str | None], Letterhead]
"""Takes the holder and the language that was asked for; None: the holder's."""

_registered: Final[list[FindLetterhead]] = []


def register_letterhead(find: FindLetterhead) -> None:
    """Have statements show this letterhead; the last one that is registered counts."""
    _registered.append(find)


def letterhead_of(holder_id: str, language: str | None) -> Letterhead:
    """The letterhead of a holder's statements; without an application that knows it, an empty one, in English."""
    return _registered[-1](holder_id, language) if _registered else Letterhead(language=language or "en")
