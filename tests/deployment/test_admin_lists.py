"""What holds for the list of every model in the admin, also for models that are registered later."""

from pathlib import Path

import pytest
from django.contrib import admin
from django.contrib.admin import ModelAdmin, ShowFacets
from django.contrib.admin.utils import label_for_field
from django.contrib.staticfiles import finders
from django.db import connection
from django.db.models import CharField, Model, TextField
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db


def registered_models() -> list[type[Model]]:
    """The models that have pages in the admin."""
    admin.autodiscover()
    return sorted(admin.site._registry, key=lambda model: model._meta.label)


@pytest.mark.products(most=6)
@pytest.mark.parametrize("model", registered_models(), ids=lambda model: model._meta.label)
def test_no_list_counts_its_rows_by_filter(model: type[Model]) -> None:
    client, opts = operator(), model._meta
    address = reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist")

    with CaptureQueriesContext(connection) as plain:
        page = client.get(address)
    with CaptureQueriesContext(connection) as asked:
        with_facets = client.get(f"{address}?_facets=True")

    assert (page.status_code, with_facets.status_code) == (200, 200)
    assert admin.site._registry[model].show_facets is ShowFacets.NEVER
    assert "_facets" not in page.content.decode()
    assert len(asked) == len(plain)
    assert not [query["sql"] for query in asked if "FILTER (WHERE" in query["sql"]]


def test_control_django_counts_where_nobody_forbids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = next(model for model in registered_models() if model._meta.label == "auth.User")
    monkeypatch.setattr(type(admin.site._registry[model]), "show_facets", ModelAdmin.show_facets)
    client = operator()

    assert "_facets" in client.get(reverse("admin:auth_user_changelist")).content.decode()
    with CaptureQueriesContext(connection) as asked:
        client.get(f"{reverse('admin:auth_user_changelist')}?_facets=True")
    assert [query["sql"] for query in asked if "FILTER (WHERE" in query["sql"]]


@pytest.mark.products(most=6)
@pytest.mark.parametrize("model", registered_models(), ids=lambda model: model._meta.label)
def test_a_value_that_the_database_cannot_hold_is_no_error_of_the_server(model: type[Model]) -> None:
    client, opts = operator(), model._meta
    client.raise_request_exception = False
    address = reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist")
    texts = [field.name for field in opts.fields if isinstance(field, CharField | TextField)]

    for name in texts[:2]:
        assert client.get(f"{address}?{name}=%00").status_code in (200, 302, 400), name


@pytest.mark.parametrize("model", registered_models(), ids=lambda model: model._meta.label)
def test_the_name_of_each_column_begins_with_a_capital(model: type[Model]) -> None:
    """A narrow page shows it in each cell as it is."""
    model_admin = admin.site._registry[model]
    names = [label_for_field(name, model, model_admin) for name in model_admin.list_display]
    assert [name for name in names if name[:1] != name[:1].upper()] == []


def test_a_first_column_without_a_link_is_named_on_a_narrow_page_too() -> None:
    """Unfold names such a cell "Select record"; the style sheet names it after its column."""
    styles = Path(str(finders.find("ledger/pages.css"))).read_text()
    without_links = [
        admin.site._registry[model] for model in registered_models() if admin.site._registry[model].list_display_links is None
    ]
    assert without_links
    for each in without_links:
        label = label_for_field(each.list_display[0], each.model, each)
        assert f'.model-{each.opts.model_name} td[data-label="Select record"]::before {{ content: "{label}"; }}' in styles


def test_nul_in_a_filter_of_operators_is_a_400() -> None:
    client = operator()
    assert client.get("/admin/axes/accessattempt/?username=%00").status_code == 400
    assert client.get("/admin/auth/user/?username=%00").status_code == 400
