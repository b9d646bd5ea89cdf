"""Operators and their groups, in the design of the other pages."""

from typing import Any, Final

from axes.models import AccessAttempt
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import BadRequest
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone
from django_otp.plugins.otp_static.models import StaticDevice
from django_otp.plugins.otp_totp.models import TOTPDevice
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from ledger.operators.staff_log import record
from ledger.staff.kit.columns import Column, NamedColumns

admin.site.index_template = "admin/ledger/home/home.html"
admin.site.unregister(User)
admin.site.unregister(Group)
# django-otp's own pages show secrets, and let an operator give another operator a device.
admin.site.unregister(TOTPDevice)
admin.site.unregister(StaticDevice)

# With the names of the sidebar and the docs. Migrations do not know these names.
NAMES: Final[dict[type[Model], str]] = {User: "operator", AccessAttempt: "failed login"}
for model, name in NAMES.items():
    model._meta.verbose_name, model._meta.verbose_name_plural = name, f"{name}s"


@admin.register(User)
class OperatorAdmin(DjangoUserAdmin, NamedColumns):
    """The operators. An operator who leaves is made inactive, not deleted: entries keep the name."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    show_facets = admin.ShowFacets.NEVER
    roles = Column("Groups", lambda operator: ", ".join(sorted(group.name for group in operator.groups.all())))

    list_display = ("username", "roles", "is_active", "is_staff", "is_superuser", "last_login")

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        """Return the operators with their groups, by one query more."""
        users: QuerySet[User] = super().get_queryset(request).prefetch_related("groups")
        return users

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        return False


class ListWithActions(NamedColumns):
    """A list whose ticked rows can be deleted together."""

    def response_action(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponseBase | None:
        """Execute the action; a ticked row whose key is not a number, which no page sends, is a 400."""
        try:
            response: HttpResponseBase | None = super().response_action(request, queryset)
        except ValueError as error:
            raise BadRequest("The key of a ticked row is not a number.") from error
        return response


@admin.register(Group)
class OperatorGroupAdmin(DjangoGroupAdmin, ListWithActions):
    """Sets of permissions."""

    list_display = ("name",)
    show_facets = admin.ShowFacets.NEVER


def _is_locked(attempt: AccessAttempt) -> bool:
    has_cooled_off = timezone.now() - attempt.attempt_time > settings.AXES_COOLOFF_TIME
    return attempt.failures_since_start >= settings.AXES_FAILURE_LIMIT and not has_cooled_off


@admin.register(AccessAttempt)
class FailedLoginAdmin(ListWithActions):
    """Failed logins by name and address, with their number. Deleting a row removes the lock that it caused."""

    failures = Column("Wrong passwords", "failures_since_start", ordering="failures_since_start")
    is_locked = Column("Locked", _is_locked, boolean=True)

    list_display = ("username", "ip_address", "failures", "is_locked", "attempt_time")
    search_fields = ("username", "ip_address")
    ordering = ("-attempt_time",)
    list_filter = ("attempt_time",)
    show_facets = admin.ShowFacets.NEVER
    fields = readonly_fields = ("username", "ip_address", "failures", "is_locked", "attempt_time", "user_agent", "path_info")

    def delete_model(self, request: Any, obj: AccessAttempt) -> None:
        """Remove the lock, and record that."""
        super().delete_model(request, obj)
        record(request, "login-unlocked", about=f"name {obj.username}", details=f"for {obj.ip_address}")

    def delete_queryset(self, request: Any, queryset: QuerySet[AccessAttempt]) -> None:
        """Remove several locks, and record each."""
        for attempt in queryset:
            self.delete_model(request, attempt)

    def has_add_permission(self, request: Any) -> bool:
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        return False
