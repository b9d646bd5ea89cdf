"""A row of an import, declared once: the request that it becomes, the id by which it is imported once, and its own time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from ledger.errors import Invalid
from ledger.exchange.files import Line, decode
from ledger.records import Shape, field_of
from ledger.rules.requests import (
    REQUEST_OPTIONS,
    GrantRequest,
    RecurringGrantRequest,
    RefundRequest,
    Request,
    RevokeRequest,
    SpendRequest,
)
from ledger.values import (
    MAX_REFERENCE_CHARACTERS,
    AppliesTo,
    Boolean,
    Choice,
    FieldError,
    Holder,
    Integer,
    Metadata,
    Text,
    Time,
    Value,
)

IMPORTED: Final[tuple[type[Request], ...]] = (GrantRequest, SpendRequest, RefundRequest, RevokeRequest, RecurringGrantRequest)
OF: Final = {"refund": "spend", "revoke": "grant"}
"""The field of a request that names an earlier entry, which a file names by the row that made it, in `of`."""
KEY_PREFIX: Final = "import/"
OPERATIONS: Final = tuple(declared.operation for declared in IMPORTED)


ROW_ID: Final = rf"[ -~]{{1,{MAX_REFERENCE_CHARACTERS}}}"


def _row_id(text: str) -> Text:
    return Text(text, most=MAX_REFERENCE_CHARACTERS, pattern=ROW_ID, rule="1 to 200 printable ASCII characters")


def _shape(declared: type[Request]) -> Shape[Any]:
    """Return the fields of a row: a recurring grant is set now, whenever its periods begin; others have a time of their own."""
    named = [field_of("of", _row_id("The row that it refers to."), required=True)]
    occurred_at = field_of("occurred_at", Time("When it happened; by default now.", null=True), required=False)
    in_first = Time("An instant of the first period that is granted here; by default now.", null=True)
    first_at = field_of("first_at", in_first, required=False)
    return Shape(
        declared,
        without=REQUEST_OPTIONS | {"holder_id", OF.get(declared.operation, "")},
        before=[
            field_of("row", _row_id("The id of the row in its source."), required=True),
            field_of("holder", Holder("The holder of the credits."), required=True),
            field_of("operation", Choice(OPERATIONS, "The kind of operation."), required=True),
            first_at if declared is RecurringGrantRequest else occurred_at,
            *(named if declared.operation in OF else []),
        ],
    )


SHAPES: Final = {declared.operation: _shape(declared) for declared in IMPORTED}


@dataclass(frozen=True, slots=True)
class ImportRow:
    """A row that can be imported.

    Args:
        line: where it stands in its file.
        of: the id of the row whose entry the request refers to; the request names entry 1 until that is known.
    """

    line: int
    request: Request
    occurred_at: datetime | None
    of: str | None


class RowError(NamedTuple):
    """Why a row cannot be imported."""

    line: int
    field_error: FieldError

    def __str__(self) -> str:
        name = self.field_error.pointer.lstrip("/") or "the row"
        return f"line {self.line}: {name}: {self.field_error.detail}"


def read_rows(lines: Iterator[Line], *, actor: str, from_text: bool) -> Iterator[ImportRow | list[RowError]]:
    """Yield each row, or all that is wrong with it.

    Args:
        actor: who the entries name.
        from_text: the values are cells of a CSV.
    """
    for line in lines:
        if line.value is None:
            yield [RowError(line.number, FieldError("", "unreadable", line.error))]
        else:
            yield _row(line.number, line.value, actor, from_text=from_text)


def _row(number: int, given: Mapping[str, Any], actor: str, *, from_text: bool) -> ImportRow | list[RowError]:
    operation = given.get("operation", "")
    shape = SHAPES.get(operation) if isinstance(operation, str) else None
    if shape is None:
        code = "not-a-choice" if "operation" in given else "required"
        return [RowError(number, FieldError("/operation", code, f"This must be one of {', '.join(OPERATIONS)}."))]
    faults: list[FieldError] = []
    fields = shape.take(_type_cells(shape, given) if from_text else dict(given), "", faults)
    if not faults:
        row, of, occurred_at = fields.pop("row"), fields.pop("of", None), fields.pop("occurred_at", None)
        del fields["operation"]
        fields |= {"holder_id": fields.pop("holder"), "idempotency_key": f"{KEY_PREFIX}{row}", "actor": actor}
        if of is not None:
            fields[OF[operation]] = 1
        try:
            return ImportRow(number, shape.make(fields), occurred_at, of)
        except Invalid as invalid:
            faults = [FieldError(invalid.facts["pointer"], invalid.facts["rule"], invalid.facts["detail"])]
    return [RowError(number, fault) for fault in faults]


def _type_cells(shape: Shape[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return cells as JSON would have them, by the types of their fields; what is no such value stays text, and is refused."""
    types = {each.json_name: each.value for each in shape.fields}
    return {name: _value(types.get(name), cell) for name, cell in given.items()}


def _value(type_: Value | None, cell: str) -> Any:
    if isinstance(type_, Integer | Boolean | Metadata | AppliesTo):
        try:
            return decode(cell)
        except ValueError:
            return cell
    return cell
