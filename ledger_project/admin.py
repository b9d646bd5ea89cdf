"""Operators and their groups, in the look of the other pages."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
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
