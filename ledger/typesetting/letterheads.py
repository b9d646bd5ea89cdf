"""The issuer of statements, and the language of their reader: another application knows both and registers a function."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, kw_only=True)
class Letterhead:
    """The data of the issuer on a statement.

    Args:
        name, line: of the issuer; the line has the address.
        footer: columns of lines, in the language of the statement.
        brand: the issuer's logo, colour and footer for the template of letters; empty for none.
        language: of the statement, BCP 47.
    """

    name: str = ""
    line: str = ""
    footer: Sequence[Sequence[str]] = ()
    brand: Mapping[str, Any] = field(default_factory=dict)
    language: str = "en"


FindLetterhead = Callable[[str, str | None], Letterhead]
"""Takes the holder and the requested language; None: the holder's language."""

_registered: Final[list[FindLetterhead]] = []


def register_letterhead(find: FindLetterhead) -> None:
    """Register a letterhead for statements; the letterhead that was registered last applies."""
    if find not in _registered:
        _registered.append(find)


def letterhead_of(holder_id: str, language: str | None) -> Letterhead:
    """Return the letterhead of a holder's statements; if no application has one, an empty letterhead in English."""
    return _registered[-1](holder_id, language) if _registered else Letterhead(language=language or "en")
