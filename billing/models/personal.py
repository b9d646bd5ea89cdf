"""What is personal in tables about people: each column says it where it is declared.

Note [Personal columns]
    The erasure of a customer, its form, `is_erased`, what documents keep, and the words for people follow from these
    declarations. The comment of a personal column in the database begins with the word *personal*: `billing_personal_columns`
    (schema.sql) reads it for the triggers, which allow the change of these columns only, and for the register. So a new personal
    column needs one line in its model, and the migration that Django makes of it. A column of a table about people that does not
    say whether it is personal ends the start.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import models

Column = TypeVar("Column", bound="models.Field[Any, Any]")

DECLARATION: Final = "personal_data"
MARK: Final = "personal"


@dataclass(frozen=True, kw_only=True)
class PersonalData:
    """What a column of a table about people has.

    Args:
        is_personal: an erasure empties it.
        words: what people call it, in a sentence.
        is_name: an erasure replaces it by the day of the erasure; an empty one is not allowed.
        is_relied_on: documents rely on it; an erasure empties it only if there is none.
        on_documents: documents keep it of their buyer, as it was when they were issued.
    """

    is_personal: bool
    words: str = ""
    is_name: bool = False
    is_relied_on: bool = False
    on_documents: bool = False


class AboutPeople(models.Model):
    """A table about people: each of its columns is declared by `personal` or `impersonal`. See Note [Personal columns]."""

    class Meta:
        abstract = True


def personal(
    column: Column, *, words: str, is_name: bool = False, is_relied_on: bool = False, on_documents: bool = False
) -> Column:
    """Declare a column whose value is about a person; see `PersonalData`.

    Raises:
        ImproperlyConfigured: the column has no empty value.
    """
    if not (column.null or isinstance(column, (models.CharField, models.TextField, models.JSONField))):
        raise ImproperlyConfigured(f"a personal {type(column).__name__} needs null=True, which an erasure writes")
    column.db_comment = f"{MARK}; {column.db_comment}" if column.db_comment else MARK
    return _declare_column(
        column,
        PersonalData(is_personal=True, words=words, is_name=is_name, is_relied_on=is_relied_on, on_documents=on_documents),
    )


def impersonal(column: Column, *, on_documents: bool = False) -> Column:
    """Declare a column that says nothing about a person, or that bills need as it is; see `PersonalData`."""
    return _declare_column(column, PersonalData(is_personal=False, on_documents=on_documents))


def _declare_column(column: Column, declaration: PersonalData) -> Column:
    setattr(column, DECLARATION, declaration)
    return column


def declared_columns(model: type[models.Model]) -> Iterator[tuple[Any, PersonalData]]:
    """Yield the columns of a table about people with their declarations, in their order; the number of the row has none."""
    for column in model._meta.concrete_fields:
        if not column.primary_key:
            yield column, getattr(column, DECLARATION)


def personal_columns(model: type[models.Model]) -> list[tuple[Any, PersonalData]]:
    """Return the personal columns of a table about people, with their declarations."""
    return [(column, declaration) for column, declaration in declared_columns(model) if declaration.is_personal]


def columns_on_documents(model: type[models.Model]) -> tuple[str, ...]:
    """Return the names of the columns that documents keep."""
    return tuple(column.name for column, declaration in declared_columns(model) if declaration.on_documents)


def erased_values(model: type[models.Model], *, name: str = "", has_documents: bool = False) -> dict[str, Any]:
    """Return what an erasure writes into a row, by the names of the columns.

    Args:
        name: what stands for the name from then on.
        has_documents: documents rely on the row: what they rely on is not among the values.
    """
    return {
        column.name: name if declaration.is_name else _empty(column)
        for column, declaration in personal_columns(model)
        if not (declaration.is_relied_on and has_documents)
    }


def _empty(column: "models.Field[Any, Any]") -> Any:
    if column.null:
        return None
    return {} if isinstance(column, models.JSONField) else ""


def tables_about_people() -> list[type[models.Model]]:
    """Return the models of all tables about people that are installed."""
    return [model for model in apps.get_models() if issubclass(model, AboutPeople)]


def ensure_declared(tables: Iterable[type[models.Model]]) -> None:
    """Return if each column of these tables says whether it is personal.

    Raises:
        ImproperlyConfigured: a column does not; it is named.
    """
    for model in tables:
        for column in model._meta.concrete_fields:
            if not column.primary_key and not hasattr(column, DECLARATION):
                raise ImproperlyConfigured(
                    f"{model.__name__}.{column.name}: a column of a table about people is declared by personal() or impersonal() "
                    "of billing.models.personal"
                )
