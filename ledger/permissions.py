"""What operators may do with credits: one row for each permission, with the roles that have it. Models and roles read them."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple


class Permission(NamedTuple):
    """A permission, `app.codename`, and the roles of a new ledger that have it, beside administrators, who have all.

    `text` names it for the model to which it is added; without a text, Django makes it for the model that the codename names.
    """

    name: str
    roles: tuple[str, ...] = ()
    model: str = ""
    text: str = ""


EVERYONE: Final = ("read-only", "support", "finance", "billing operator")

PERMISSIONS: Final = (
    *(
        Permission(f"ledger.view_{model}", EVERYONE)
        for model in ("account", "batchlisting", "credittype", "dailytotal", "entrylisting", "ratelisting", "refusallisting")
    ),
    Permission("ledger.grant_credits", ("support",), "entrylisting", "Can grant credits"),
    Permission("ledger.refund_spend", ("support",), "entrylisting", "Can refund a spend"),
    Permission("ledger.revoke_grant", ("finance",), "entrylisting", "Can revoke the rest of a grant"),
    Permission("ledger.release_hold", ("support",), "entrylisting", "Can release a hold"),
    Permission("ledger.view_locks", EVERYONE, "account", "Can view current locks"),
    Permission("ledger.set_overdraft", (), "account", "Can set an overdraft"),
    Permission("ledger.transfer_credits", (), "account", "Can transfer credits"),
    Permission("ledger.publish_rate", (), "ratelisting", "Can publish a rate"),
    *(Permission(f"ledger.{action}_credittype") for action in ("add", "change", "delete")),
    Permission("ledger.add_apikey"),
    Permission("ledger.view_apikey"),
    Permission("ledger.revoke_apikey", (), "apikey", "Can revoke API key"),
    Permission("ledger.view_staffevent"),
)


def added_to(model: str, permissions: Iterable[Permission] = PERMISSIONS) -> list[tuple[str, Any]]:
    """What a model's `Meta.permissions` says: the codenames and texts of the permissions that are added to it."""
    return [(row.name.partition(".")[2], row.text) for row in permissions if row.model == model]
