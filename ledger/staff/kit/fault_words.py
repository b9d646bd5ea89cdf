"""Faults in the words of a form: a sentence of the API names fields and values, and a form has labels in their place.

A name in a sentence has an underscore, or stands in backticks. What somebody typed may have an underscore too: only names that
the form knows are replaced.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from django import forms

NAMES: Final = re.compile(r"`([A-Za-z0-9_]+)`|(?<![\w.@:/'\"“-])[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?![\w@:/'\"”-])")


def say_labels(detail: str, words: Mapping[str, str]) -> str:
    """Return the sentence with what a form calls each name in it.

    Args:
        words: labels and words of choices, by the names of the API. A name in backticks that it lacks is said in words.
    """

    def say_name(found: re.Match[str]) -> str:
        known = words.get(found[1] or found[0])
        if known:
            return f"“{known}”"
        return found[1].replace("_", " ") if found[1] else found[0]

    return NAMES.sub(say_name, detail)


def label_of(field: Any) -> str:
    """Return the label of a field as a sentence has it."""
    return str(field.label or "").removesuffix(" (UTC)")


def words_within(field: forms.Field) -> dict[str, str]:
    """Return what a field calls the names that are its columns, and its choices or those of a column."""
    columns: Mapping[str, forms.Field] = getattr(field, "columns", {})
    words: dict[str, str] = {}
    for each in (field, *columns.values()):
        choices = [choice for choice in getattr(each.widget, "choices", ()) if isinstance(choice[1], str)]
        words |= {str(value): text for value, text in choices if value}
    return words | {name: label_of(each) for name, each in columns.items()}
