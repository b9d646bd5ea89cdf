"""Receivers of Django's signals that write to the staff log: logins, and all changes of operators and groups."""

from typing import Any

from django.contrib.auth.models import Group, User
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_save
from django.http import HttpRequest

from ledger.operators.staff_log import record
from ledger_project.operators.preferences import remember

RECORDED_FIELDS = ("username", "is_active", "is_staff", "is_superuser", "email", "first_name", "last_name")
"""Fields whose changes the staff log records with the old and the new value."""
VERBS = {"post_add": "added", "post_remove": "removed", "pre_clear": "removed all"}


def connect() -> None:
    """Connect the functions below. axes comes before them, so it has counted a failure by then."""
    user_logged_in.connect(logged_in)
    user_logged_in.connect(remember)
    user_login_failed.connect(login_failed)
    user_logged_out.connect(logged_out)
    pre_save.connect(before_operator, sender=User)
    post_save.connect(after_operator, sender=User)
    pre_save.connect(before_group, sender=Group)
    post_save.connect(after_group, sender=Group)
    post_delete.connect(group_deleted, sender=Group)
    for through in (User.groups.through, User.user_permissions.through, Group.permissions.through):
        m2m_changed.connect(permissions_changed, sender=through)


# Logins ----------------------------------------------------------------------------------------------


def logged_in(sender: Any, request: HttpRequest, user: User, **more: Any) -> None:
    """Record the login, and whether it had a code."""
    second = "with a code" if getattr(user, "otp_device", None) else ""
    record(request, "login", details=second, actor=f"admin:{user.get_username()}")


def login_failed(sender: Any, credentials: dict[str, Any], request: HttpRequest | None = None, **more: Any) -> None:
    """Record a failure that axes counted, and a lock that it caused; axes does not count attempts on a locked name."""
    if request is None or getattr(request, "axes_failures_since_start", None) is None:
        return
    name = str(credentials.get("username", ""))
    record(request, "login-failed", details=str(more.get("reason", "wrong password")), actor=name)
    if getattr(request, "axes_locked_out", False):
        record(request, "login-locked", actor=name)


def logged_out(sender: Any, request: HttpRequest, user: User | None, **more: Any) -> None:
    """Record the log-out; ignore visitors who were not logged in."""
    if user is not None:
        record(request, "logout", actor=f"admin:{user.get_username()}")


# Operators and groups --------------------------------------------------------------------------------


def before_operator(sender: Any, instance: User, update_fields: Any = None, **more: Any) -> None:
    """Keep the present values. A login saves only its time."""
    changing = set(RECORDED_FIELDS if update_fields is None else update_fields) & set(RECORDED_FIELDS)
    stored = User.objects.filter(pk=instance.pk).values(*sorted(changing)).first() if instance.pk and changing else None
    instance._before = stored or {}  # type: ignore[attr-defined]


def after_operator(sender: Any, instance: User, created: bool, **more: Any) -> None:
    """Record changed values, and a new password, but not one that Django hashed again by itself."""
    who = f"user {instance.get_username()}"
    if created:
        record(None, "operator-created", about=who, details=_rights(instance))
        return
    before: dict[str, Any] = instance._before  # type: ignore[attr-defined]
    changed = [
        f"{name}: {value} → {getattr(instance, name)}" for name, value in before.items() if value != getattr(instance, name)
    ]
    if changed:
        record(None, "operator-changed", about=who, details="; ".join(changed))
    if instance._password is not None:  # type: ignore[attr-defined]
        record(None, "password-changed", about=who)


def _rights(user: User) -> str:
    return ", ".join(name.replace("is_", "") for name in ("is_active", "is_staff", "is_superuser") if getattr(user, name))


def before_group(sender: Any, instance: Group, **more: Any) -> None:
    """Keep the name."""
    instance._before = Group.objects.filter(pk=instance.pk).values_list("name", flat=True).first()  # type: ignore[attr-defined]


def after_group(sender: Any, instance: Group, created: bool, **more: Any) -> None:
    """Record a new group, or a new name."""
    before = instance._before  # type: ignore[attr-defined]
    if created:
        record(None, "group-created", about=f"group {instance.name}")
    elif before != instance.name:
        record(None, "group-changed", about=f"group {instance.name}", details=f"name: {before} → {instance.name}")


def group_deleted(sender: Any, instance: Group, **more: Any) -> None:
    record(None, "group-deleted", about=f"group {instance.name}")


def permissions_changed(sender: Any, instance: Any, action: str, model: Any, pk_set: Any = None, **more: Any) -> None:
    """Record which permissions or groups somebody got or lost."""
    if action not in VERBS or (action != "pre_clear" and not pk_set):
        return
    kind = "user" if isinstance(instance, User) else "group" if isinstance(instance, Group) else "permission"
    others = "" if pk_set is None else ", ".join(sorted(_name(other) for other in model.objects.filter(pk__in=pk_set)))
    about = f"{kind} {_name(instance)}"
    record(None, "permissions-changed", about=about, details=f"{VERBS[action]} {model._meta.verbose_name_plural}: {others}")


def _name(row: Any) -> str:
    """The name of a row: of a permission as in the code, of any other row as text."""
    return f"{row.content_type.app_label}.{row.codename}" if hasattr(row, "codename") else str(row)
