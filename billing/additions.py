"""The parts that other applications add to billing: to its pages, its sums of money, the customer's page, and its audit.

Billing knows none of these applications. Each registers in its `AppConfig.ready`; pages and audit ask here, so nothing of the
pages is loaded before.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from ledger.portal.parts import Cell, IntermediatePage, PageDisplay, PageList

Part = tuple[str, dict[str, Any]]
"""A heading, and the table below it."""
Parts = Callable[[Any], Sequence[Part]]
"""Takes the row of the page."""


@dataclass(frozen=True, kw_only=True)
class RowOperation:
    """A button on the page of a row, and the form behind it.

    Args:
        name, url_path: of the form in the code, and in its address.
        title, icon: of the button.
        permission: of the operators who may use it.
        view: takes the admin, the request and the row.
        is_possible: takes the row; False hides the button.
        stands_out: True shows the button beside those of the page, not under More.
        listed: takes the rows of a list, and returns the ids of those that lead to the form there too, by a number of queries
            that does not depend on the rows; None: no list offers it.
    """

    name: str
    title: str
    icon: str
    permission: str
    url_path: str
    view: Callable[[Any, Any, Any], Any]
    is_possible: Callable[[Any], bool]
    stands_out: bool = False
    listed: Callable[[Sequence[Any]], Collection[int]] | None = None


@dataclass(frozen=True)
class RowPage:
    """What applications add to the page of a row."""

    _parts: list[Parts] = field(default_factory=list)
    operations: dict[str, RowOperation] = field(default_factory=dict)

    def register_parts(self, given: Parts) -> None:
        """Show these tables too."""
        if given not in self._parts:
            self._parts.append(given)

    def register_operation(self, given: RowOperation) -> None:
        """Offer this button too."""
        self.operations[given.name] = given

    def parts_of(self, row: Any) -> list[Part]:
        """Return the tables that were added about a row."""
        return [part for each in self._parts for part in each(row)]

    def operation_names(self, *, stands_out: bool) -> list[str]:
        """Return the names of the buttons that were added: of those that stand out, or of the others."""
        return [each.name for each in self.operations.values() if each.stands_out is stands_out]

    def listed_for(self, rows: Sequence[Any]) -> dict[int, list[RowOperation]]:
        """Return the operations that a list offers, by the id of their row."""
        row_operations: dict[int, list[RowOperation]] = {row.pk: [] for row in rows}
        for each in self.operations.values():
            for pk in each.listed(rows) if each.listed is not None and rows else ():
                row_operations[pk].append(each)
        return row_operations

    def impossible_on(self, row: Any) -> list[str]:
        """Return the names of the buttons without effect on a row."""
        return [each.name for each in self.operations.values() if not each.is_possible(row)]


INVOICE_PAGE: Final = RowPage()
CUSTOMER_PAGE: Final = RowPage()


# Money -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Sales:
    """Sales that no invoice has, which the first page and the page of the year show beside those of invoices.

    Args:
        what: is sold, in the plural, such as packs.
        permission: of the operators who may see the sums.
        table, minor: where they are, and the column of the amount; `paid_at`, `currency` and `id` are columns too.
    """

    what: str
    permission: str
    table: str
    minor: str


FindPayment = Callable[[str, str], tuple[str, str] | None]
"""Takes a provider and its id of a payment; returns the noun and the name of what the payment has paid, or None."""


class TransferOrder(Protocol):
    """An order that a bank transfer pays; its text names it for people."""

    @property
    def pk(self) -> int:
        """The id."""

    @property
    def currency(self) -> str:
        """ISO 4217."""

    @property
    def amount_minor(self) -> int:
        """What it costs, in minor units."""

    @property
    def invoice_id(self) -> int | None:
        """The invoice that it is for; None if it is for something else."""


@dataclass(frozen=True, kw_only=True)
class TransferOrders:
    """Orders, such as those of packs, that a bank transfer pays beside invoices when its text has their reference.

    Args:
        model: of the orders.
        named_in: takes a text; returns the ids of the orders whose references stand in it.
        find: takes ids; returns the orders among them that a transfer pays, in their order.
        bought_by: takes an order; returns the credit type and the number of the credits that it buys; None if it buys none.
        book: takes the id of an order as `intent`, and what `billing.documents.invoice_payments.record_payment` takes.
        explain: takes an order and the refusal of `book`; returns why no later try will book it; None if it is another refusal.
    """

    model: type[Any]
    named_in: Callable[[str], Sequence[int]]
    find: Callable[[Sequence[int]], Sequence[TransferOrder]]
    bought_by: Callable[[Any], tuple[str, int] | None]
    book: Callable[..., Any]
    explain: Callable[[Any, Exception], str | None]


SALES: Final[dict[str, Sales]] = {}
_transfer_orders: Final[list[Callable[[], TransferOrders]]] = []
_find_payment: Final[list[FindPayment]] = []


def register_sales(given: Sales) -> None:
    """Show the money of these sales too."""
    SALES[given.what] = given


def register_transfer_orders(load: Callable[[], TransferOrders]) -> None:
    """Let transfers pay these orders too; the ones that were registered last are used."""
    if load not in _transfer_orders:
        _transfer_orders.append(load)


def transfer_orders() -> TransferOrders | None:
    """Return the orders that a transfer can pay beside invoices; None if no application has any."""
    return _transfer_orders[-1]() if _transfer_orders else None


def register_payments(find: FindPayment) -> None:
    """Refuse the payment of an invoice that this function finds: it is recorded as that of something else."""
    if find not in _find_payment:
        _find_payment.append(find)


def find_payment(provider: str, payment: str) -> tuple[str, str] | None:
    """Return the noun and the name of what a payment has paid that is no invoice; None if there is nothing."""
    return next((found for find in _find_payment if (found := find(provider, payment)) is not None), None)


# The customer's page ---------------------------------------------------------------------------------


class CustomerPart(Protocol):
    """What an application adds to the page of one customer; see `ledger.portal.parts.Customer`."""

    def pay_cell(self, invoice: Any, shown: "PageDisplay") -> "Cell":
        """Return the button that pays an invoice; an empty cell where nothing is to be paid."""

    def sections(self, shown: "PageDisplay") -> "Sequence[PageList]":
        """Return its lists, with their buttons."""

    def act(self, name: str, given: Mapping[str, str], shown: "PageDisplay") -> "IntermediatePage | str | None":
        """Do what a button says."""

    def step(self, name: str, shown: "PageDisplay", *, is_back: bool) -> "IntermediatePage | None":
        """Return a step that a button leads to."""


CustomerParts = Callable[[Any], CustomerPart]
"""Takes the customer of the page."""
_customer_payments: Final[list[CustomerParts]] = []


def register_customer_payments(make: CustomerParts) -> None:
    """Let customers pay on their page by this part; the one that was registered last is used."""
    if make not in _customer_payments:
        _customer_payments.append(make)


def customer_payments(customer: Any) -> CustomerPart | None:
    """Return the part by which a customer pays on the page; None if no application has one."""
    return _customer_payments[-1](customer) if _customer_payments else None


# The audit -------------------------------------------------------------------------------------------

_laws: Final[dict[str, str]] = {}
_named_entries: Final[list[str]] = []


def register_laws(laws: Mapping[str, str]) -> None:
    """Let the audit of billing check these laws too: the name of a finding and its query, whose rows are findings in words."""
    _laws.update(laws)


def laws() -> dict[str, str]:
    """Return the laws of applications."""
    return dict(_laws)


def register_named_entries(sql: str) -> None:
    """Let the audit look for these entries in the ledger too: rows of what names each, holder, credit type, sequence and kind."""
    if sql not in _named_entries:
        _named_entries.append(sql)


def named_entries() -> tuple[str, ...]:
    """Return the queries of applications for the entries that they name."""
    return tuple(_named_entries)
