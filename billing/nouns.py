"""What goes out of a noun is declared where its fields are: beside the type of each, in the request that makes it. Pure.

    email: Annotated[str, Email("Where documents are mailed to."), GoesOut(label="E-mail", example="ada@example.com")] = ""

The response, its example, the columns of the list's file, the operators' forms and the lines of documents follow; see "How is a
field of a customer added?" in docs/explanation/architecture.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_type_hints

from ledger.records import Field, Nested, Record, declared_fields
from ledger.values import Metadata


@dataclass(frozen=True, kw_only=True)
class GoesOut:
    """How a field goes out.

    Args:
        label: what forms call it; None: its name in words.
        help: the sentence that forms have below it.
        words: the names of its values for people; without them, people read the values.
        is_needed: an operator may not leave it empty; None: as its default says.
        column: its title in the file of the list, empty: its name in words; None: the file does not have it.
        example: its value in the examples of the API; None: they do not have it.
        is_fixed: it never changes.
        on_documents: the title of its line on documents, by language, with the members of texts such as {buyer_id}; empty:
            documents have no line of it. Documents keep only the columns that their model declares so.
        e_invoice_term: the term of EN 16931 that it is on e-invoices, such as BT-10; empty: none of the document itself.
        sentence: says its value on its page, for {}; empty: nothing does, or a sentence of its own. The default is not said.
    """

    label: str | None = None
    help: str = ""
    words: Mapping[Any, str] = field(default_factory=dict)
    is_needed: bool | None = None
    column: str | None = ""
    example: Any = None
    is_fixed: bool = False
    on_documents: Mapping[str, str] = field(default_factory=dict)
    e_invoice_term: str = ""
    sentence: str = ""


class NounField(NamedTuple):
    """A field of a noun: the field of its request, and how it goes out."""

    declared: Field
    out: GoesOut

    @property
    def name(self) -> str:
        """Its name in requests, in responses and of its column."""
        return self.declared.name

    @property
    def default(self) -> Any:
        """The value that a request without it means; None: there is none."""
        return self.declared.make_default() if self.declared.make_default else self.declared.default

    @property
    def is_plain(self) -> bool:
        """Whether it is one value, which a form and a cell can show: not an object."""
        return not isinstance(self.declared.value, (Nested, Metadata))


def noun_fields(declared: type[Record]) -> tuple[NounField, ...]:
    """Return the fields of a noun in the order of their declaration.

    Raises:
        TypeError: a field does not say how it goes out.
    """
    fields = _FIELDS.get(declared)
    if fields is None:
        fields = _FIELDS[declared] = _fields_of(declared)
    return fields


_FIELDS: dict[type[Record], tuple[NounField, ...]] = {}


def _fields_of(declared: type[Record]) -> tuple[NounField, ...]:
    hints = get_type_hints(declared, include_extras=True)
    fields = []
    for each in declared_fields(declared):
        out = next((item for item in hints[each.name].__metadata__ if isinstance(item, GoesOut)), None)
        if out is None:
            raise TypeError(f"{declared.__name__}.{each.name} does not say how it goes out: it needs a GoesOut")
        fields.append(NounField(each, out))
    return tuple(fields)


def changeable_fields(declared: type[Record]) -> tuple[NounField, ...]:
    """Return the fields that can change."""
    return tuple(each for each in noun_fields(declared) if not each.out.is_fixed)


def example_of(declared: type[Record]) -> dict[str, Any]:
    """Return the example of a request that makes the noun."""
    return {each.name: each.out.example for each in noun_fields(declared) if each.out.example is not None}


def line_names(declared: type[Record], language: str) -> dict[str, str]:
    """Return the titles of the lines that documents have of the noun, by field."""
    return {each.name: each.out.on_documents[language] for each in noun_fields(declared) if each.out.on_documents}


def e_invoice_terms(declared: type[Record]) -> dict[str, str]:
    """Return the terms of EN 16931 that e-invoices have of the noun, by field."""
    return {each.name: each.out.e_invoice_term for each in noun_fields(declared) if each.out.e_invoice_term}
