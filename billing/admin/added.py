"""The buttons that other applications add to billing's pages."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from billing.additions import RowOperation, RowPage
from ledger.staff.kit.pages import ReadOnlyAdmin, operation


def add_operations(model_admin: type[ReadOnlyAdmin], page: RowPage) -> None:
    """Offer the operations that applications have registered for a page."""
    for each in page.operations.values():
        model_admin.add_operation(each.name, _operation_of(each))


def _operation_of(given: RowOperation) -> Callable[..., HttpResponse]:
    @operation(given.title, icon=given.icon, permission=given.permission, url_path=given.url_path)
    def show(self: ReadOnlyAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
        response: HttpResponse = given.view(self, request, self.row_of(request, object_id))
        return response

    return show
