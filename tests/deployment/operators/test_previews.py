"""Operators see what a form will do before it is done, unless it can be undone."""

from collections.abc import Iterator
from typing import Any

from django.urls import get_resolver

from ledger.staff.kit.idempotent_forms import FormPage

CAN_BE_UNDONE = {
    "AlertPage": "an alert is declared, changed and ended by the same form",
    "NotePage": "a draft's note is changed by the same form until the draft is finalised",
    "ResumePage": "billing is suspended again by its next failure, and the next run bills nothing that it would not have billed",
    "AgainPage": "it sends the document that the customer was sent before",
}
"""The pages whose form is sent at once, with the reason."""


def pages(page: type[Any] = FormPage) -> Iterator[type[Any]]:
    for each in page.__subclasses__():
        yield each
        yield from pages(each)


def test_each_form_whose_effect_cannot_be_undone_shows_what_will_happen_first():
    assert get_resolver().reverse_dict  # imports the pages
    at_once = {page.__name__ for page in pages() if not page.is_tried}
    assert at_once == CAN_BE_UNDONE.keys()
    tried = {page.__name__ for page in pages() if page.is_tried}
    assert len(tried) > 10
    without_preview = {page.__name__ for page in pages() if page.is_tried and page.dry_run is FormPage.dry_run}
    assert without_preview == set()
