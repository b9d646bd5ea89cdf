"""What operators may do with credits: each permission once, with the roles that have it. Models, roles and pages read it."""

from collections.abc import Iterable, Mapping
from typing import Any, Final


class Permission(str):
    """The name of a permission, `app.codename`, with the roles of a new ledger that have it, beside administrators, who have all.

    `text` names it for the model to which it is added; without a text, Django makes it for the model that the codename names.
    """

    roles: tuple[str, ...]
    model: str
    text: str

    def __new__(cls, name: str, roles: tuple[str, ...] = (), model: str = "", text: str = "") -> "Permission":
        made = super().__new__(cls, name)
        made.roles, made.model, made.text = roles, model, text
        return made


def table_of(names: Mapping[str, Any]) -> tuple[Permission, ...]:
    """The permissions of a module, in the order of their declaration."""
    return tuple(each for each in names.values() if isinstance(each, Permission))


EVERYONE: Final = ("read-only", "support", "finance", "billing operator")

VIEW_ACCOUNT: Final = Permission("ledger.view_account", EVERYONE)
VIEW_BATCHLISTING: Final = Permission("ledger.view_batchlisting", EVERYONE)
VIEW_CREDITTYPE: Final = Permission("ledger.view_credittype", EVERYONE)
VIEW_ENTRYLISTING: Final = Permission("ledger.view_entrylisting", EVERYONE)
VIEW_RATELISTING: Final = Permission("ledger.view_ratelisting", EVERYONE)
VIEW_REFUSALLISTING: Final = Permission("ledger.view_refusallisting", EVERYONE)
GRANT_CREDITS: Final = Permission("ledger.grant_credits", ("support",), "entrylisting", "Can grant credits")
REFUND_SPEND: Final = Permission("ledger.refund_spend", ("support",), "entrylisting", "Can refund a spend")
REVOKE_GRANT: Final = Permission("ledger.revoke_grant", ("finance",), "entrylisting", "Can revoke the rest of a grant")
RELEASE_HOLD: Final = Permission("ledger.release_hold", ("support",), "entrylisting", "Can release a hold")
VIEW_LOCKS: Final = Permission("ledger.view_locks", EVERYONE, "account", "Can view current locks")
SET_OVERDRAFT: Final = Permission("ledger.set_overdraft", (), "account", "Can set an overdraft")
SET_BUDGET: Final = Permission("ledger.set_budget", (), "account", "Can set a budget")
SET_RECURRING_GRANT: Final = Permission("ledger.set_recurring_grant", (), "account", "Can set a recurring grant")
TRANSFER_CREDITS: Final = Permission("ledger.transfer_credits", (), "account", "Can transfer credits")
REISSUE_LOT: Final = Permission("ledger.reissue_lot", ("support",), "entrylisting", "Can change the terms of a lot")
REVERSE_TRANSFER: Final = Permission("ledger.reverse_transfer", (), "entrylisting", "Can reverse a transfer")
FREEZE_HOLDER: Final = Permission("ledger.freeze_holder", ("support",), "account", "Can freeze a holder")
SET_TEST_CLOCK: Final = Permission("ledger.set_test_clock", (), "account", "Can move a holder's test clock")
MAKE_PAGE_LINK: Final = Permission("ledger.make_page_link", ("support",), "account", "Can make a link to a customer's page")
PUBLISH_RATE: Final = Permission("ledger.publish_rate", (), "ratelisting", "Can publish a rate")
ADD_CREDITTYPE: Final = Permission("ledger.add_credittype")
CHANGE_CREDITTYPE: Final = Permission("ledger.change_credittype")
DELETE_CREDITTYPE: Final = Permission("ledger.delete_credittype")
VIEW_STAFFEVENT: Final = Permission("ledger.view_staffevent")

PERMISSIONS: Final = table_of(dict(globals()))


def added_to(model: str, permissions: Iterable[Permission] = PERMISSIONS) -> list[tuple[str, Any]]:
    """What a model's `Meta.permissions` says: the codenames and texts of the permissions that are added to it."""
    return [(row.partition(".")[2], row.text) for row in permissions if row.model == model]
