"""Operators and their groups, in the look of the other pages."""

from typing import Any

from axes.models import AccessAttempt
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.utils import timezone
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class OperatorAdmin(DjangoUserAdmin, ModelAdmin):
    """Who may log in. Whoever leaves is made inactive, not deleted: the name stands in the ledger for good."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    show_facets = admin.ShowFacets.NEVER

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        return False


@admin.register(Group)
class OperatorGroupAdmin(DjangoGroupAdmin, ModelAdmin):
    """Sets of permissions."""

    show_facets = admin.ShowFacets.NEVER


@admin.register(AccessAttempt)
class FailedLoginAdmin(ModelAdmin):
    """Which names were guessed at from which addresses, and how often. Deleting one lifts the lock that it caused."""

    list_display = ("username", "ip_address", "failures", "is_locked", "attempt_time")
    search_fields = ("username", "ip_address")
    ordering = ("-attempt_time",)
    list_filter = ("attempt_time",)
    show_facets = admin.ShowFacets.NEVER
    fields = readonly_fields = ("username", "ip_address", "failures", "is_locked", "attempt_time", "user_agent", "path_info")

    @admin.display(description="Wrong passwords", ordering="failures_since_start")
    def failures(self, attempt: AccessAttempt) -> int:
        return attempt.failures_since_start

    @admin.display(description="Locked", boolean=True)
    def is_locked(self, attempt: AccessAttempt) -> bool:
        has_cooled_off = timezone.now() - attempt.attempt_time > settings.AXES_COOLOFF_TIME
        return attempt.failures_since_start >= settings.AXES_FAILURE_LIMIT and not has_cooled_off

    def has_add_permission(self, request: Any) -> bool:
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        return False
