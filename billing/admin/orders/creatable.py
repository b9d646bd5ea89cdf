"""Pages whose rows operators can create."""

from collections.abc import Callable
from typing import Any

from django.contrib.auth import get_permission_codename
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse

from ledger.admin.kit.pages import ReadOnlyAdmin


class CreatableAdmin(ReadOnlyAdmin):
    """Read-only pages, and a form in two steps that creates a row, for operators with the model's `add` permission."""

    create_view: Callable[..., HttpResponse]
    """The form: `create_view` of a module of `order_forms`."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may use the form in two steps."""
        return bool(request.user.has_perm(f"{self.opts.app_label}.{get_permission_codename('add', self.opts)}"))

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the form or execute it."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        return self.create_view(request)
