"""Pages of forms about orders: they write at most once, and try the write beforehand without keeping it."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.db.models import Model

from billing.errors import AlreadyExists, CouponNotApplicable, NotFound
from billing.rating.prices.reading import PriceInvalid
from billing.request_keys import WriteResult, execute_once, is_used
from billing.tax_asking import asks_taxes
from ledger.services import preview
from ledger.staff.kit.cells import row_url
from ledger.staff.kit.idempotent_forms import Done, DryRun, FieldFaults, FormPage, FormT
from ledger.values import FieldError

Written = TypeVar("Written")
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class OrderPage(FormPage[FormT], Generic[FormT, Written]):
    """The page of a form about orders.

    Args:
        collection: the collection of the REST call that does the same.
        write: writes and returns the row, or raises.
        before: asks others what the write needs to know, and keeps that on the form; runs before the transaction of a write or a
            preview, unless the key of the form is used already.
        describe: describes the effect of the write; runs before that is rolled back.
        done: describes the result, in a word or two and in detail, from the row.
        about: the row of the form, to whose page it returns; None: it returns to the page of the new row.
        rows: the table of the written row; None: `done` gets `about`.
        pointer: the field that shows that a name is taken, or that it names no row.
    """

    collection: str
    write: Callable[[FormT], Written]
    describe: Callable[[Written, FormT], DryRun]
    done: Callable[[Any, FormT], tuple[str, str]]
    about: Model | None = None
    rows: type[Model] | None = None
    pointer: str = "/ref"
    before: Callable[[FormT], None] | None = None

    is_tried = True

    def operation(self, form: FormT) -> Done:
        """Write it at most once. The same key with other values is refused."""
        self._prepare(form)
        content = json.dumps([self.title, form.body(), form.cleaned_data["reason"]], sort_keys=True, ensure_ascii=True)
        with faults_at(self.pointer):
            result = execute_once(
                collection=self.collection,
                idempotency_key=form.key,
                request_digest=hashlib.sha256(f"admin {self.collection} {content}".encode()).digest(),
                act=lambda: WriteResult(201, {"id": self._id_of(self.write(form))}),
            )
        row: Any = self.rows._default_manager.get(pk=result.body["id"]) if self.rows else self.about
        page = self.about or row
        return Done(*self.done(row, form), row_url(type(page), page.pk), result.replayed)

    def _id_of(self, written: Any) -> Any:
        return written.pk if self.rows else self.about and self.about.pk

    @asks_taxes
    def try_out(self, form: FormT, look: Callable[[FormT, Written], Result]) -> Result:
        """Write it in a preview, and let `look` see the row."""
        self._prepare(form)
        with faults_at(self.pointer), preview():
            return look(form, self.write(form))

    def dry_run(self, form: FormT) -> DryRun:
        """Write it in a preview, and describe that."""
        return self.try_out(form, lambda form, written: self.describe(written, form))

    def _prepare(self, form: FormT) -> None:
        if self.before is not None and not is_used(self.collection, form.key):
            self.before(form)


@contextmanager
def faults_at(pointer: str) -> Iterator[None]:
    """Show a refusal at the fields of the form."""
    try:
        yield
    except PriceInvalid as invalid:
        raise FieldFaults(invalid.errors) from invalid
    except AlreadyExists as error:
        raise _fault(pointer, f"There is another {error.facts['resource']} {error.facts['ref']}") from error
    except CouponNotApplicable as error:
        raise _fault(pointer, error.facts["why"]) from error
    except NotFound as error:
        raise _fault(pointer, f"There is no {error.facts['resource']} {error.facts['ref']}") from error


def _fault(pointer: str, detail: str) -> FieldFaults:
    return FieldFaults([FieldError(pointer, "refused", detail)])
