"""The parts that other applications add to billing: tables and buttons of its pages, and laws of its audit.

Billing knows none of these applications. Each registers in its `AppConfig.ready`; pages and audit ask here, so nothing of the
pages is loaded before.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

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
        listed: takes the rows of a list, and returns the ids of those that lead to the form there too, by a number of queries
            that does not depend on the rows; None: no list offers it.
        is_first: shows the button beside the others instead of in the menu "More".
    """

    name: str
    title: str
    icon: str
    permission: str
    url_path: str
    view: Callable[[Any, Any, Any], Any]
    is_possible: Callable[[Any], bool]
    listed: Callable[[Sequence[Any]], Collection[int]] | None = None
    is_first: bool = False


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

    def operation_names(self, *, first: bool = False) -> list[str]:
        """Return the names of the buttons that were added: those of the menu, or those that stand first."""
        return [each.name for each in self.operations.values() if each.is_first is first]

    def listed_for(self, rows: Sequence[Any]) -> dict[int, list[RowOperation]]:
        """Return the operations that a list offers, by the id of their row."""
        found: dict[int, list[RowOperation]] = {row.pk: [] for row in rows}
        for each in self.operations.values():
            for pk in each.listed(rows) if each.listed is not None and rows else ():
                found[pk].append(each)
        return found

    def impossible_on(self, row: Any) -> list[str]:
        """Return the names of the buttons without effect on a row."""
        return [each.name for each in self.operations.values() if not each.is_possible(row)]


INVOICE_PAGE: Final = RowPage()
CUSTOMER_PAGE: Final = RowPage()

_laws: Final[dict[str, str]] = {}


def register_laws(laws: Mapping[str, str]) -> None:
    """Let the audit of billing check these laws too: the name of a finding and its query, whose rows are findings in words."""
    _laws.update(laws)


def laws() -> dict[str, str]:
    """Return the laws of applications."""
    return dict(_laws)
