"""What another application adds to the page: who the customer is, further lists, documents, and what the customer can do there.

The ledger knows no application. Each registers a function in its `AppConfig.ready`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from ledger.typesetting.languages import Language

MOST_COLUMNS: Final = 3
"""How many columns a narrow screen has room for."""


class Cell(NamedTuple):
    """A cell of a list: its text, the address to which it leads, whether it is a number.

    Args:
        action: the address of an action: the text is a button that does it.
        is_urgent: the text is red.
    """

    text: str
    url: str = ""
    is_number: bool = False
    action: str = ""
    is_urgent: bool = False


@dataclass(frozen=True, kw_only=True)
class PageList:
    """A list on the page.

    Args:
        name: of the list in the JSON.
        rows: its rows in the JSON.
        title, headers, cells: the same for people; `empty` is the sentence for no rows.
        older_than: where the next page of the list begins, as `PageDisplay.before` returns it; None for the last one.
        is_dated: its first column is a time, which a narrow screen shows above the rest of the row.
        notice: what the customer must not miss of the list, said above everything else with a link to the list (`notice_link`).
    """

    name: str
    title: str
    empty: str
    headers: Sequence[Cell]
    cells: Sequence[Sequence[Cell]]
    rows: Sequence[Mapping[str, Any]]
    older_than: int | None = None
    is_dated: bool = False
    notice: str = ""
    notice_link: str = ""

    @property
    def labelled(self) -> list[list[tuple[Cell, Cell]]]:
        """The cells with their headers, which stand beside them on a narrow screen."""
        return [list(zip(self.headers, row, strict=True)) for row in self.cells]

    @property
    def is_wide(self) -> bool:
        """Whether a narrow screen has no room for all columns beside each other; a button takes as much as two columns."""
        has_buttons = any(cell.action for row in self.cells for cell in row)
        return not self.is_dated and len(self.headers) + has_buttons > MOST_COLUMNS


class Document(NamedTuple):
    """A PDF, and its file name in printable ASCII."""

    content: bytes
    file_name: str


class FormField(NamedTuple):
    """A field of a form: a list of choices (value, text), or without them a number."""

    name: str
    label: str
    choices: Sequence[tuple[str, str]] = ()
    value: str = ""


@dataclass(frozen=True, kw_only=True)
class IntermediatePage:
    """A page of its own between the page and the end of something that the customer does, such as a payment.

    Args:
        rows: what is to be known, as label and text, such as the account to which to transfer.
        picture: SVG beside the rows; `caption` says what it is.
        next_url, next_text: where the customer goes on, on another site.
        goes_on: the browser goes to `next_url` by itself.
        reload_seconds: the browser loads this page again after that time; None: it does not.
        fields, action, button: a form, the address of its action, and the text of its button.
        buttons: further buttons, each with its action.
        is_refusal: it says why nothing was done.
    """

    title: str
    text: str
    rows: Sequence[tuple[str, str]] = ()
    picture: str = ""
    caption: str = ""
    next_url: str = ""
    next_text: str = ""
    goes_on: bool = False
    reload_seconds: int | None = None
    fields: Sequence[FormField] = ()
    action: str = ""
    button: str = ""
    buttons: Sequence[Cell] = ()
    is_refusal: bool = False


class PortalCustomer(Protocol):
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

    def sections(self, shown: "PageDisplay") -> Sequence[PageList]:
        """Return the lists about the customer."""

    def document(self, name: str) -> Document | None:
        """Return a document of the customer by the name that its address has; None if the customer has no such document."""

    def act(self, name: str, given: Mapping[str, str], shown: "PageDisplay") -> "IntermediatePage | str | None":
        """Do what a button of the page says, and return the name of the step that follows, "" for the page itself.

        A step that is shown once alone, since nothing of it is stored, is returned itself. Called only for a link with
        `allow_payments` or `allow_plan_changes`. None: the customer has no such button now.

        Args:
            name: as in the address of the action. given: the fields of its form.

        Raises:
            LedgerError: it is refused, and nothing was written.
        """

    def step(self, name: str, shown: "PageDisplay", *, is_back: bool) -> IntermediatePage | None:
        """Return the step of that name; None if the customer has no such step.

        Args:
            is_back: the customer comes back from another site.
        """


@dataclass(frozen=True, kw_only=True)
class PageDisplay:
    """How a page is shown.

    Args:
        document_url, action_url: return the address of a document, or of an action, by its name.
        back_url: returns the address, with its host, to which another site sends the customer back, by the name of the step.
        allows_payments: the customer may pay and buy.
        allows_plan_changes: the customer may cancel subscriptions, and move them to the plans with these refs (`plans`).
        only_step: the link opens only this step, with what follows from it; empty: the whole page.
        before: of lists that are continued, by their name: only what is older than this.
    """

    language: Language
    hides_amounts: bool
    document_url: Callable[[str], str] = field(repr=False)
    action_url: Callable[[str], str] = field(repr=False)
    back_url: Callable[[str], str] = field(repr=False)
    allows_payments: bool = False
    allows_plan_changes: bool = False
    plans: Sequence[str] = ()
    only_step: str = ""
    before: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AccountPart:
    """What another application adds about the account that the page shows, whether the holder is a customer or not.

    Args:
        sections: the lists about an account: its holder, its credit type, and how the page is shown.
        document: a document of a holder by its name, if it is about one of the credit types that the link shows (empty: all), in
            the language of the page; None if there is no such document.
    """

    sections: Callable[[str, str, "PageDisplay"], Sequence[PageList]]
    document: Callable[[str, str, Sequence[str], Language], Document | None]


FindCustomer = Callable[[str], PortalCustomer | None]
"""Takes a holder; None if the holder is no customer, or if it is not clear which."""

_registered: Final[list[FindCustomer]] = []
_account_parts: Final[list[AccountPart]] = []


def register(find: FindCustomer) -> None:
    """Let this function find customers; the one that was registered last is asked."""
    if find not in _registered:
        _registered.append(find)


def register_account_part(part: AccountPart) -> None:
    """Show this part for each account."""
    if part not in _account_parts:
        _account_parts.append(part)


def account_parts() -> Sequence[AccountPart]:
    """Return the parts of all applications, in the order of their registration."""
    return _account_parts


def customer_of(holder_id: str) -> PortalCustomer | None:
    """Return the customer that the holder is, if an application knows one."""
    return _registered[-1](holder_id) if _registered else None
