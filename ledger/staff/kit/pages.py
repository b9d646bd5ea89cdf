"""The base of the operators' pages: read-only pages, and lists that never count.

Invariant: a page needs the same number of queries, and reads a bounded number of rows, however long the history is. So no list
    counts its table, sorts without an index or uses OFFSET: a page begins behind the last row shown.
Other applications build their pages from these too.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partialmethod
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin import ShowFacets
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ORDER_VAR, PAGE_VAR
from django.contrib.auth import get_permission_codename
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Model, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from unfold.decorators import action
from unfold.views import ChangeList
from unfold.widgets import UnfoldAdminTextInputWidget

from ledger.errors import LedgerError
from ledger.staff.kit.filters import WrongFilter, read_number
from ledger.staff.kit.saved_lists import SavedList
from ledger.values import MAX_ACTOR_CHARACTERS, MAX_REASON_CHARACTERS

PAGE_ROWS = 50
NOTHING_AT_ZERO = {"held", "expired", "not_yet_effective"}
"""Facts of a refusal that matter only if they are above 0."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """Some rows of a list.

    `older` is the cursor of the rows after these, None after the last row; `note` says what the operator must know about how
    they were found.
    """

    rows: Sequence[Any]
    older: str | None = None
    note: str = ""


class UncountedPaginator(Paginator):
    """Counts nothing: the links below a list are "newest" and "older"."""

    template_name = "admin/ledger/kit/older_link.html"

    @property
    def count(self) -> int:
        return 0


class UncountedList(ChangeList):
    """A change list whose rows come from its admin's `read_page`, by cursor."""

    is_refused = False

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        """Apply filters and search to a queryset; `read_page` orders it."""
        try:
            return super().get_queryset(request, exclude_parameters)
        except WrongFilter as error:
            messages.error(request, str(error))
            self.is_refused = True
            return self.root_queryset.none()

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[str]:
        return []

    def get_ordering_field_columns(self) -> dict[int, str]:
        return {} if self._sorted is None else {self._sorted[0]: "desc" if self._sorted[1] else "asc"}

    @property
    def sorting(self) -> tuple[str, bool] | None:
        """By which field the operator sorts the list, and whether in descending order; None: by its own order."""
        if self._sorted is None:
            return None
        field = self.get_ordering_field(self.list_display[self._sorted[0]])
        return str(field), self._sorted[1]

    @property
    def _sorted(self) -> tuple[int, bool] | None:
        """The number of the column that the address names, of those that can be sorted by."""
        first = str(self.params.get(ORDER_VAR, "")).partition(".")[0]
        number = first.removeprefix("-")
        if not (number.isascii() and number.isdecimal() and len(number) < 4 and int(number) < len(self.list_display)):
            return None
        return (int(number), first.startswith("-")) if self.list_display[int(number)] in (self.sortable_by or ()) else None

    def values(self) -> dict[str, str]:
        """Return the filters' values, by parameter."""
        found = {spec.parameter_name: value for spec in self.filter_specs if (value := spec.value()) not in (None, "")}
        for name, value in found.items():
            if "\x00" in value:
                raise WrongFilter(f"A {name.replace('_', ' ')} must not contain NUL.")
        return found

    def get_results(self, request: HttpRequest) -> None:
        """Read one page; nothing is counted."""
        cursor = request.GET.get(PAGE_VAR, "")
        self.page_rows: int = getattr(request, "rows_per_page", PAGE_ROWS)
        try:
            page = Page(rows=[]) if self.is_refused else self.model_admin.read_page(request, self, cursor)
        except WrongFilter as error:
            messages.error(request, str(error))
            self.is_refused = True
            page = Page(rows=[])
        self.model_admin.prepare(page.rows)
        self.page = page
        self.result_list = list(page.rows)
        self.result_count = len(self.result_list)
        # Equal, so that the page does not show "n results": that would be the number of rows on the page.
        self.full_result_count = self.result_count
        self.show_full_result_count = False
        self.show_admin_actions = False
        self.can_show_all = self.multi_page = False
        self.paginator = UncountedPaginator(self.result_list, PAGE_ROWS)
        self.note = page.note
        self.is_first = not cursor
        self.newest_link = self.get_query_string()
        self.older_link = self.get_query_string({PAGE_VAR: page.older}) if page.older else None
        self.beside = self.model_admin.beside(request, self)


class _Named:
    """A row under its model's name and its own: the heading capitalises its first letter, and an id must stay as it is."""

    def __init__(self, row: Model) -> None:
        self._row = row

    def __getattr__(self, name: str) -> Any:
        return getattr(self._row, name)

    def __str__(self) -> str:
        return f"{self._row._meta.verbose_name} {self._row}"


def operation(
    title: str, *, icon: str, permission: str, url_path: str | None = None
) -> Callable[[Callable[..., HttpResponse]], Callable[..., HttpResponse]]:
    """Return an action with a permission, such as ledger.grant_credits; for a name alone, unfold would ask the database."""

    def decorate(method: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        made: Any = action(description=title, icon=icon, permissions=[permission.partition(".")[2]], url_path=url_path)(method)
        made.permission = permission
        return made

    return decorate


def guarded(model_admin: Any, route: str, view: Callable[..., HttpResponseBase], *, name: str, permission: str) -> URLPattern:
    """The address of a page beside those of a model's rows, for operators with that permission.

    Args:
        view: takes the request and what the route captures.
    """

    def permitted(request: HttpRequest, **captured: Any) -> HttpResponseBase:
        if not request.user.has_perm(permission):
            raise PermissionDenied
        return view(request, **captured)

    return path(route, model_admin.admin_site.admin_view(permitted), name=name)


def _has_permission(model_admin: Any, permission: str, request: HttpRequest, object_id: str | None = None) -> bool:
    return bool(request.user.has_perm(permission))


class ReadOnlyAdmin(SavedList):
    """Pages without changes. Nobody may change or delete here, not even a superuser; `create_view` alone adds rows."""

    create_view: Callable[..., HttpResponse] | None = None
    """The form that creates a row, for operators with the model's `add` permission."""

    list_filter_submit = True
    list_filter_sheet = True
    list_fullwidth = True
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    actions = None
    sortable_by: Sequence[str] = ()
    """The columns by which operators can sort the list: an index on each serves `bounded_reads.order_of`."""
    nearest = "Newest"
    further = "Older"
    compressed_fields = True
    change_form_outer_before_template = "admin/ledger/kit/sentences.html"
    change_form_outer_after_template = "admin/ledger/kit/details.html"

    def __init_subclass__(cls, **options: Any) -> None:
        """Define the methods that Django calls for the permissions of `operation`s."""
        super().__init_subclass__(**options)
        for name, method in list(vars(cls).items()):
            if hasattr(method, "permission"):
                cls.add_operation(name, method)

    @classmethod
    def add_operation(cls, name: str, method: Any) -> None:
        """Have an `operation` under that name, with the method that Django calls for its permission."""
        setattr(cls, name, method)
        setattr(cls, f"has_{method.permission.partition('.')[2]}_permission", partialmethod(_has_permission, method.permission))

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return whether a form creates rows, and the operator may use it."""
        permission = f"{self.opts.app_label}.{get_permission_codename('add', self.opts)}"
        return self.create_view is not None and bool(request.user.has_perm(permission))

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the form that creates a row, or execute it."""
        if self.create_view is None or not self.has_add_permission(request):
            raise PermissionDenied
        return self.create_view(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_nothing_left(self, request: HttpRequest, object_id: str) -> Collection[str]:
        """Return the names of actions without effect on this row: their buttons are not shown."""
        return ()

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        """Return the possible actions. See Note [A double click is harmless] for why this is no permission."""
        hidden = {self.get_unfold_action(name).action_name for name in self.has_nothing_left(request, object_id)}
        return [each for each in super().get_actions_detail(request, object_id) if each.action_name not in hidden]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return UncountedList

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return a page of the queryset, the newest first: by the primary key, which rises."""
        queryset = cl.queryset.order_by("-pk")
        if cursor:
            queryset = queryset.filter(pk__lt=read_number(cursor))
        rows = list(queryset[: cl.page_rows + 1])
        shown = rows[: cl.page_rows]
        return Page(rows=shown, older=str(shown[-1].pk) if len(rows) > cl.page_rows else None)

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> tuple[QuerySet[Any], bool]:
        """Return the rows that `searched` finds."""
        word = search_term.strip()
        condition = self.searched(word) if word else Q()
        return (
            (queryset.filter(condition), False) if condition is not None else super().get_search_results(request, queryset, word)
        )

    def searched(self, word: str) -> Q | None:
        """Return the rows for a word in the search box; None: those that Django finds by `search_fields`.

        Q(), for all rows, if `read_page` does the search.
        """
        return None

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return the row with the values of its columns; read once per request."""
        # An approval sends a form of another model within its own request.
        rows: dict[tuple[type, str], Any] = request.__dict__.setdefault("_rows", {})
        key = (self.model, object_id)
        if key not in rows:
            row = rows[key] = self.find(request, object_id)
            self.prepare([] if row is None else [row])
        return rows[key]

    def find(self, request: HttpRequest, key: str) -> Any:
        """Return the row of that key; None if it does not exist."""
        return super().get_object(request, key)

    def prepare(self, rows: Sequence[Any]) -> None:
        """Give the rows the values of their columns, by a number of queries that does not depend on the number of rows."""

    def row_of(self, request: HttpRequest, object_id: str) -> Any:
        """Return the row of an action's address; or raise Http404."""
        row = self.get_object(request, unquote(object_id))
        if row is None:
            raise Http404
        return row

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return the content of a row's page beside its columns: the page's `title`, `sentences`, tables as `parts`, `links`."""
        return {}

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the row with its details."""
        row = self.get_object(request, unquote(object_id))
        details = {} if row is None else self.details(request, row)
        context = {**(extra_context or {}), **({"subtitle": ""} if details else {}), **details}
        response: HttpResponse = super().change_view(request, object_id, form_url, context)
        return response

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show one row, under its own name; refuse a POST, from which Django would save a copy for operators who may add rows."""
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        response: HttpResponse = super().changeform_view(request, object_id, form_url, extra_context)
        context = getattr(response, "context_data", None)
        if context and context.get("original") is not None:
            context["original"] = _Named(context["original"])
        return response

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> Any:
        """Go to the row: a row that never changes has its history on its page."""
        opts = self.model._meta
        return HttpResponseRedirect(reverse(f"admin:{opts.app_label}_{opts.model_name}_change", args=[object_id]))


# Forms -----------------------------------------------------------------------------------------------


class ReasonForm(forms.Form):
    """A form with the reason for an action."""

    reason = forms.CharField(
        max_length=MAX_REASON_CHARACTERS,
        widget=UnfoldAdminTextInputWidget(),
        help_text="The ledger records it permanently with your name.",
    )


def form_page(
    request: HttpRequest, form: forms.Form, *, title: str, button: str, explanation: str, back: str, **more: Any
) -> HttpResponse:
    """Return a page with a form and a button; with status 422 after a POST that did nothing.

    Args:
        back: the address of the button "Back".
    """
    context = {
        **admin.site.each_context(request),
        "title": title,
        "form": form,
        "button": button,
        "explanation": explanation,
        "back": back,
        **more,
    }
    status = 422 if request.method == "POST" else 200
    return TemplateResponse(request, "admin/ledger/kit/operation.html", context, status=status)


def actor(request: HttpRequest) -> str:
    """Return the actor for records: `admin:` and the operator's name."""
    return f"admin:{request.user.get_username()}"[:MAX_ACTOR_CHARACTERS]


Write = Callable[[str, Any], Any]
"""Takes a fact's name and value; returns the value as people write it."""


def shown_facts(facts: Mapping[str, Any], write: Write = lambda name, value: value) -> list[tuple[str, Any]]:
    """Return the facts that fit into a line, by name: without lists and empty facts."""
    return [
        (name.replace("_", " "), write(name, value))
        for name, value in facts.items()
        if value is not None and not isinstance(value, list | dict) and not (value == 0 and name in NOTHING_AT_ZERO)
    ]


def describe(error: LedgerError, write: Write = lambda name, value: value) -> str:
    """Return the title of the error, and its facts."""
    found = ", ".join(f"{name} {value}" for name, value in shown_facts(error.facts, write))
    return f"{error.title}: {found}" if found else error.title
