"""Every kind of document has its row, and what the row promises."""

from django.db import connection

from billing.documents.printed_texts import TEXTS
from billing.documents.printing import PAGES
from billing.models import DOCUMENT_KINDS, Invoice


def values(sql: str) -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return {value for (value,) in cursor.fetchall()}


def test_every_table_of_numbered_documents_is_of_a_kind(db: None) -> None:
    numbered = values(
        "SELECT table_name::text FROM information_schema.columns "
        "WHERE column_name = 'series_value' AND table_schema = current_schema()"
    )
    assert numbered == {kind.table for kind in DOCUMENT_KINDS}


def test_every_kind_has_a_digest_and_knows_which_rows_have_one(db: None) -> None:
    for kind in DOCUMENT_KINDS:
        assert values(f"SELECT proname::text FROM pg_proc WHERE proname = '{kind.table}_digest'")
        assert values(f"SELECT id FROM {kind.table} WHERE {kind.chained_if}") == set()


def test_every_kind_has_a_page_and_a_title_in_every_language() -> None:
    assert PAGES.keys() == {*DOCUMENT_KINDS}
    for texts in TEXTS.values():
        assert all(texts[kind.word.replace(" ", "_")] for kind in DOCUMENT_KINDS)


def test_kinds_are_told_apart_by_series_and_by_code() -> None:
    assert [(kind.series, kind.e_invoice_code) for kind in DOCUMENT_KINDS] == [("INV", "380"), ("CN", "381")]
    assert Invoice._meta.get_field("series").default == "INV"
