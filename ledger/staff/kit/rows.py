"""Fields whose value is typed as a table of rows: a row is added and removed by a button, with and without scripts.

Note [Rows as they were typed]
    The value of such a field is `TypedRows` wherever it is shown: texts by the names of columns, without rows in which nothing is
    typed. A page sends each cell by itself; the second step of a form, and a form that waits for an approval, send all rows as
    JSON under the field's own name, as they were typed, so that they are read in the same way a second time.
"""

import json
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar, Final

from django import forms
from django.core.exceptions import ValidationError
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from ledger.staff.kit.form_fields import Display, UTCField
from ledger.staff.kit.money_fields import HasCurrency, MoneyField
from ledger.values import Value

MAX_ROWS: Final = 1000
"""The rows that a page sends at most; declarations have lower limits."""
MORE_ROWS: Final = 3
"""The empty rows that a page without scripts shows when the operator asks for more."""


class TypedRows(list[dict[str, Any]]):
    """Rows as they were typed. See Note [Rows as they were typed]."""


class RowsInput(forms.Widget):
    """A table with a row for each part of the value. One more row is empty, for pages without scripts."""

    template_name = "admin/ledger/kit/rows.html"
    least_rows = 1
    model = ""
    """What is chosen elsewhere in the form: columns of other models are hidden."""
    currency_column = ""
    """The column with the currency of the row's money; empty: the form has it."""

    def __init__(self, columns: Mapping[str, forms.Field], *, noun: str) -> None:
        super().__init__()
        self.columns = dict(columns)
        self.noun = noun
        self.faults: dict[tuple[int, str], str] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> "RowsInput":
        copied = copy(self)
        copied.attrs = self.attrs.copy()
        copied.columns = deepcopy(self.columns, memo)
        copied.faults = {}
        return copied

    def get_context(self, name: str, value: Any, attrs: dict[str, Any] | None) -> dict[str, Any]:
        """Return the columns, and a row of cells for each row of the value."""
        context = super().get_context(name, value, attrs)
        typed: list[dict[str, Any]] = [*(rows_of_json(value) if isinstance(value, str) else value or [])]
        typed += [{}] * max(self.least_rows - len(typed), 1)
        id_ = str(context["widget"]["attrs"].get("id") or f"id_{name}")
        context["widget"] |= {
            "id": id_,
            "noun": self.noun,
            "article": "an" if self.noun[0] in "AEIO" else "a",
            "columns": [{"title": field.label, **self._use(field)} for field in self.columns.values()],
            "rows": [
                [self._cell(name, id_, number, column, row) for column in self.columns]
                for number, row in enumerate(typed[:MAX_ROWS])
            ],
        }
        return context

    def _use(self, field: forms.Field) -> dict[str, Any]:
        models = getattr(field, "models", None)
        return {"models": models and " ".join(models), "is_hidden": models is not None and self.model not in models}

    def _cell(self, name: str, id_: str, number: int, column: str, row: Mapping[str, Any]) -> dict[str, Any]:
        field, fault, use = self.columns[column], self.faults.get((number, column), ""), self._use(self.columns[column])
        own, cell_id = f"{name}-{number}-{column}", f"{id_}-{number}-{column}"
        attrs: dict[str, Any] = {"id": cell_id, "aria-label": f"{self.noun} {number + 1}: {field.label}"}
        attrs |= {"aria-invalid": "true", "aria-describedby": f"{cell_id}_fault"} if fault else {}
        attrs |= {"disabled": True} if use["is_hidden"] or self.attrs.get("disabled") else {}
        if self.currency_column and isinstance(field, HasCurrency):
            field.set_currency(self.currency_of(row), f"{name}-{number}-{self.currency_column}")
        value = row.get(column, field.initial)
        return {
            "title": field.label,
            "input": field.widget.render(own, "" if value is None else value, attrs),
            "fault": fault,
            "fault_id": f"{cell_id}_fault",
            **use,
        }

    def currency_of(self, row: Mapping[str, Any]) -> str:
        """Return the code of the currency that is typed in a row, or that an untouched one has from the start."""
        column = self.columns[self.currency_column]
        return str(column.to_python(row.get(self.currency_column, column.initial)) or "")

    def value_from_datadict(self, data: Mapping[str, Any], files: Any, name: str) -> TypedRows:
        """Return the rows with the texts that were typed; or those of a hidden field, which has them as JSON."""
        sent = data.get(name)
        if isinstance(sent, TypedRows):
            return sent
        if isinstance(sent, str):
            return rows_of_json(sent)
        numbers = {key.split("-")[-2] for key in data if key.startswith(f"{name}-") and key.count("-") == name.count("-") + 2}
        rows = TypedRows()
        for number in sorted(int(each) for each in numbers if each.isascii() and each.isdecimal() and len(each) < 5)[
            : MAX_ROWS + 1
        ]:
            texts = {column: str(data.get(f"{name}-{number}-{column}") or "") for column in self.columns}
            if any(text.strip() and text != self.columns[column].initial for column, text in texts.items()):
                rows.append({column: text for column, text in texts.items() if text.strip()})
        return rows

    def value_omitted_from_data(self, data: Mapping[str, Any], files: Any, name: str) -> bool:
        return not any(key == name or key.startswith(f"{name}-") for key in data)

    def id_for_label(self, id_: str) -> str:
        return f"{id_}-0-{next(iter(self.columns))}" if id_ else id_


def rows_of_json(text: str) -> TypedRows:
    """Return the rows of a hidden field, or of an address; a text that is no JSON of rows is no rows."""
    try:
        decoded = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return TypedRows()
    rows = [row for row in decoded if isinstance(row, dict)] if isinstance(decoded, list) else []
    return TypedRows({str(name): str(cell) for name, cell in row.items() if cell not in (None, "")} for row in rows)


class RowsField(forms.Field):
    """A value that is typed as rows. Subclasses say what the rows mean.

    Args:
        columns: the fields of a row, by name; each is optional, since the declaration says what a row lacks.
        noun: what a row is, such as "Phase".
    """

    widget: Any = RowsInput
    widget_class: ClassVar[type[RowsInput]] = RowsInput

    def __init__(self, columns: Mapping[str, forms.Field], *, noun: str = "Row", **options: Any) -> None:
        super().__init__(widget=self.widget_class(columns, noun=noun), **options)

    def value_of(self, rows: Sequence[dict[str, Any]]) -> Any:
        """Return the request's value for rows with cleaned cells, as JSON; call `refuse` for what no request can have."""
        raise NotImplementedError

    def rows_of(self, value: Any) -> list[dict[str, Any]]:
        """Return the rows of a request's value; the inverse of `value_of`."""
        raise NotImplementedError

    def place_of(self, parts: Sequence[str], rows: Sequence[dict[str, Any]]) -> tuple[int, str] | None:
        """Return the row and the column in which a fault is shown; None: it is a fault of the whole.

        Args:
            parts: of the fault's pointer, within the value.
            rows: as they were typed.
        """
        if not parts or not parts[0].isdecimal() or int(parts[0]) >= len(rows):
            return None
        named = [part for part in parts[1:] if part in self.columns]
        return int(parts[0]), named[0] if named else next(iter(self.columns))

    @property
    def columns(self) -> dict[str, forms.Field]:
        """The fields of a row."""
        columns: dict[str, forms.Field] = self.widget.columns
        return columns

    def set_currency(self, currency: str, currency_field: str = "") -> None:
        """Use this currency in the cells with money, if no column has the currency of its row."""
        for field in self.columns.values():
            if isinstance(field, HasCurrency) and not self.widget.currency_column:
                field.set_currency(currency, currency_field)

    def refuse(self, number: int, column: str, detail: str) -> str:
        """Mark a cell as wrong; return the fault as the field says it."""
        self.widget.faults[number, column] = detail
        return f"{self.widget.noun} {number + 1}: {detail}"

    def fault_at(self, parts: Sequence[str], rows: Sequence[dict[str, Any]], detail: str) -> str:
        """Mark the cell to which a fault belongs; return the fault as the field says it."""
        place = self.place_of(parts, rows)
        return detail if place is None else self.refuse(*place, detail)

    def to_python(self, value: Any) -> Any:
        """Return the request's value, or refuse each cell that cannot be read."""
        self.widget.faults = {}
        rows = self.prepare_value(value)
        if len(rows) > MAX_ROWS:
            raise ValidationError(f"a form takes at most {MAX_ROWS:,} rows; the REST API may take more")
        cleaned: list[dict[str, Any]] = []
        faults: list[str] = []
        for number, row in enumerate(rows):
            cleaned.append({})
            for column, field in self.columns.items():
                if column in row:
                    if self.widget.currency_column and isinstance(field, HasCurrency):
                        field.set_currency(self.widget.currency_of(row))
                    try:
                        cleaned[-1][column] = _as_json(field.to_python(row[column]))
                    except ValidationError as wrong:
                        faults.append(self.refuse(number, column, wrong.messages[0]))
        if not faults:
            found = self.value_of(cleaned)
            faults = [f"{self.widget.noun} {number + 1}: {detail}" for (number, _), detail in self.widget.faults.items()]
        if faults:
            raise ValidationError(faults)
        return found

    def prepare_value(self, value: Any) -> TypedRows:
        """Return the rows of a value as they are typed."""
        if isinstance(value, TypedRows):
            return value
        if isinstance(value, str):
            return rows_of_json(value)
        rows = self.rows_of(value) if value else []
        return TypedRows(
            {
                name: self._type_cell(name, row, cell)
                for name, cell in row.items()
                if cell not in (None, "") and name in self.columns
            }
            for row in rows
        )

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(self.prepare_value(initial) != data)

    def _type_cell(self, name: str, row: Mapping[str, Any], cell: Any) -> str:
        field = self.columns[name]
        if isinstance(field, MoneyField):
            if self.widget.currency_column:
                field.set_currency(self.widget.currency_of(row))
            return str(field.typed(Decimal(cell) if isinstance(cell, str) else cell))
        return str(cell).removesuffix("Z").removesuffix("+00:00") if isinstance(field, UTCField) else str(cell)


def _as_json(value: Any) -> Any:
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value


def unescaped(parts: Sequence[str]) -> list[str]:
    """Return the parts of a pointer as the names that they stand for."""
    return [part.replace("~1", "/").replace("~0", "~") for part in parts]


def with_more_rows(form: forms.Form, what: str) -> dict[str, Any]:
    """Return the values typed into a form, as first values of another one, with MORE_ROWS more in a field with rows.

    Args:
        what: the name of the field; another name gives no more rows.
    """
    typed = {name: field.widget.value_from_datadict(form.data, form.files, name) for name, field in form.fields.items()}
    if isinstance(typed.get(what), TypedRows):
        typed[what] = TypedRows([*typed[what], *({} for _ in range(MORE_ROWS))])
    return typed


# Cells -----------------------------------------------------------------------------------------------


def text_cell(label: str, *, references: str = "", placeholder: str = "", inputmode: str = "", strip: bool = True) -> forms.Field:
    """Return a cell for a text; with `references`, it searches among the rows of that noun."""
    attrs = {"autocomplete": "off", "spellcheck": "false", "placeholder": placeholder, "inputmode": inputmode}
    field = forms.CharField(
        label=label,
        required=False,
        strip=strip,
        widget=UnfoldAdminTextInputWidget(attrs={name: each for name, each in attrs.items() if each}),
    )
    field.references = references  # type: ignore[attr-defined]
    return field


def choice_cell(label: str, choices: Mapping[str, str], *, unset: str = "Choose one") -> forms.Field:
    """Return a cell for one of some words. The declaration refuses others."""
    field = forms.CharField(label=label, required=False)
    field.widget = UnfoldAdminSelectWidget(choices=[("", unset), *choices.items()])
    return field


def time_cell(label: str) -> forms.Field:
    """Return a cell for a time in UTC."""
    widget = UnfoldAdminTextInputWidget()
    widget.input_type = "datetime-local"
    return UTCField(label=label, required=False, widget=widget, input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"])


def price_cell(label: str) -> forms.Field:
    """Return a cell for money in the currency's unit; the declaration knows its limits."""
    return MoneyField(label=label, required=False, least=0, most=0, is_minor=False)


# Usual rows ------------------------------------------------------------------------------------------


class KeysField(RowsField):
    """An object: a row has a key and its value. The first column is the key's, the second one the value's."""

    def value_of(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        key, cell = self.columns
        found: dict[str, Any] = {}
        for number, row in enumerate(rows):
            if row.get(key, "") in found:
                self.refuse(number, key, f"“{row[key][:60]}” stands here twice.")
            found[str(row.get(key, ""))] = row.get(cell, "")
        return found

    def rows_of(self, value: Any) -> list[dict[str, Any]]:
        key, cell = self.columns
        return [{key: name, cell: each} for name, each in value.items()]

    def place_of(self, parts: Sequence[str], rows: Sequence[dict[str, Any]]) -> tuple[int, str] | None:
        key, cell = self.columns
        named = [number for number, row in enumerate(rows) if parts and row.get(key, "") == parts[0]]
        return (named[0], cell if rows[named[0]].get(key) else key) if named else None


class NamesField(RowsField):
    """A list of names, each once: a row has one."""

    def value_of(self, rows: Sequence[dict[str, Any]]) -> list[Any]:
        (name,) = self.columns
        return list(dict.fromkeys(row[name] for row in rows))

    def rows_of(self, value: Any) -> list[dict[str, Any]]:
        (name,) = self.columns
        return [{name: each} for each in value]


class PurposeField(RowsField):
    """What credits can pay for: a row has a rate, or a label and one of its values. No row: everything."""

    def __init__(self, **options: Any) -> None:
        cells = {
            "rate": text_cell("Rate", references="rate_code"),
            "label": text_cell("or label", placeholder="member"),
            "value": text_cell("with value", placeholder="ada"),
        }
        super().__init__(cells, noun="Row", **options)

    def value_of(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        purpose: dict[str, Any] = {}
        for number, row in enumerate(rows):
            rate, label, value = (row.get(column, "") for column in self.columns)
            if rate and (label or value):
                self.refuse(number, "rate", "Type a rate or a label in a row, not both.")
            elif rate:
                purpose.setdefault("rates", []).append(rate)
            elif label and value:
                purpose.setdefault("labels", {}).setdefault(label, []).append(value)
            else:
                self.refuse(number, "value" if label else "label", "A label and its value belong together.")
        return purpose

    def rows_of(self, value: Any) -> list[dict[str, Any]]:
        labels = [{"label": label, "value": each} for label, values in value.get("labels", {}).items() for each in values]
        return [*({"rate": rate} for rate in value.get("rates", ())), *labels]

    def place_of(self, parts: Sequence[str], rows: Sequence[dict[str, Any]]) -> tuple[int, str] | None:
        kind, name, *place = [*parts, "", ""]
        if not name:
            return None
        if kind == "rates":
            places, place = [(number, "rate") for number, row in enumerate(rows) if row.get("rate")], [name]
        else:
            places = [(number, "value") for number, row in enumerate(rows) if row.get("label") == name]
        index = int(place[0]) if place and place[0].isdecimal() else 0
        return places[min(index, len(places) - 1)] if places else None


def purpose_field(value: Value, shown: Display) -> forms.Field:
    """Return the field of what credits can pay for."""
    return PurposeField()
