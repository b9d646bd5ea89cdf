"""Roles: groups that a new ledger has, and exactly what each may do. docs/how-to/admin.md shows them.

A migration makes them once. From then on operators change them: no later migration changes what a group may do.
"""

from typing import Any, Final

from billing import permissions as billing_permissions
from ledger import applications
from ledger.operators import permissions as credit_permissions
from ledger.operators.permissions import EVERYONE, Permission

ACCESS: Final = tuple(
    Permission(name)
    for name in (
        "auth.add_group",
        "auth.add_user",
        "auth.change_group",
        "auth.change_user",
        "auth.delete_group",
        "auth.view_group",
        "auth.view_user",
        "axes.delete_accessattempt",
        "axes.view_accessattempt",
    )
)
PERMISSIONS: Final = (
    *credit_permissions.PERMISSIONS,
    *(row for module in applications.permission_modules() for row in module.PERMISSIONS),
    *billing_permissions.PERMISSIONS,
    *ACCESS,
)
ROLES: Final[dict[str, frozenset[str]]] = {
    **{role: frozenset(row for row in PERMISSIONS if role in row.roles) for role in EVERYONE},
    "administrator": frozenset(row for row in PERMISSIONS),
}


def make_groups(group_model: Any, permission_model: Any) -> list[str]:
    """Make the missing groups with their permissions, or raise; existing groups stay as they are.

    Args:
        group_model, permission_model: Django's, or those of a migration's state.

    Returns:
        The names of the new groups.

    Raises:
        LookupError: a permission does not exist.
    """
    known = {
        f"{row.content_type.app_label}.{row.codename}": row for row in permission_model.objects.select_related("content_type")
    }
    made = []
    for name, permissions in ROLES.items():
        if group_model.objects.filter(name=name).exists():
            continue
        missing = sorted(permissions - known.keys())
        if missing:
            raise LookupError(f"the role {name} needs permissions that do not exist: {', '.join(missing)}")
        group_model.objects.create(name=name).permissions.set([known[each] for each in permissions])
        made.append(name)
    return made
