"""What another application adds to the page: who the customer is, further lists, documents.

The ledger does not know billing. An application registers a function in its `AppConfig.ready`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from ledger.typesetting.languages import Language

MOST_COLUMNS: Final = 4
"""How many columns a narrow screen has room for."""


class Cell(NamedTuple):
    """A cell of a list: its text, the address to which it leads, whether it is a number."""

    text: str
    url: str = ""
    is_number: bool = False


@dataclass(frozen=True, kw_only=True)
class Section:
    """A list on the page.

    Args:
        name: of the list in the JSON.
        rows: its rows in the JSON.
        title, headers, cells: the same for people; `empty` is the sentence for no rows.
        older_than: where the next page of the list begins, as `Shown.before` returns it; None for the last one.
    """

    name: str
    title: str
    empty: str
    headers: Sequence[Cell]
    cells: Sequence[Sequence[Cell]]
    rows: Sequence[Mapping[str, Any]]
    older_than: int | None = None

    @property
    def labelled(self) -> list[list[tuple[Cell, Cell]]]:
        """The cells with their headers, which stand beside them on a narrow screen."""
        return [list(zip(self.headers, row, strict=True)) for row in self.cells]

    @property
    def is_wide(self) -> bool:
        """Whether a narrow screen has no room for all columns beside each other."""
        return len(self.headers) > MOST_COLUMNS


class Document(NamedTuple):
    """A PDF, and its file name in printable ASCII."""

    content: bytes
    file_name: str


class Customer(Protocol):
    """The customer that a holder is, as another application knows it."""

    @property
    def name(self) -> str:
        """The name, empty if it is unknown."""

    @property
    def language(self) -> str:
        """BCP 47."""

    @property
    def time_zone(self) -> str:
        """A zone of the IANA database."""

    def sections(self, shown: "Shown") -> Sequence[Section]:
        """Return the lists about the customer."""

    def document(self, name: str) -> Document | None:
        """Return a document of the customer by the name that its address has; None if the customer has no such document."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """How a page is shown.

    Args:
        document_url: returns the address of a document by its name.
        before: of lists that are continued, by their name: only what is older than this.
    """

    language: Language
    hides_amounts: bool
    document_url: Callable[[str], str] = field(repr=False)
    before: Mapping[str, int] = field(default_factory=dict)


FindCustomer = Callable[[str], Customer | None]
"""Takes a holder; None if the holder is no customer, or if it is not clear which."""

_registered: Final[list[FindCustomer]] = []


def register(find: FindCustomer) -> None:
    """Let this function find customers; the one that was registered last is asked."""
    if find not in _registered:
        _registered.append(find)


def customer_of(holder_id: str) -> Customer | None:
    """Return the customer that the holder is, if an application knows one."""
    return _registered[-1](holder_id) if _registered else None
