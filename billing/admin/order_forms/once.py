"""How a form about orders writes at most once, and tries the write beforehand without keeping it."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from billing.errors import AlreadyExists, CouponNotApplicable, NotFound
from billing.rating.price_input import PriceInvalid
from billing.request_keys import WriteResult, execute_once
from ledger.admin.kit.idempotent_forms import FieldFaults
from ledger.errors import Invalid
from ledger.services import preview

Result = TypeVar("Result")


def written_once(
    collection: str, *, idempotency_key: str, asked: Mapping[str, Any], act: Callable[[], int], field: str = "/ref"
) -> tuple[int, bool]:
    """Write the row of the form at most once; return its id, and whether an earlier click wrote it.

    Args:
        collection: the collection of the REST call that does the same.
        asked: all values of the form; a form with other values and the same key is refused.
        act: writes, and returns the row's id.
        field: shows that a name is taken, or names no row.
    """
    form = json.dumps(asked, sort_keys=True, default=str, ensure_ascii=True)
    with faults_at(field):
        result = execute_once(
            collection=collection,
            idempotency_key=idempotency_key,
            request_digest=hashlib.sha256(f"admin {collection} {form}".encode()).digest(),
            act=lambda: WriteResult(201, {"id": act()}),
        )
    return result.body["id"], result.replayed


def tried(act: Callable[[], Result], *, field: str = "/ref") -> Result:
    """Run the service in a preview; return its result, or show at the fields why it refused."""
    with faults_at(field), preview():
        return act()


@contextmanager
def faults_at(field: str) -> Iterator[None]:
    """Show a refusal at the fields of the form."""
    try:
        yield
    except PriceInvalid as invalid:
        raise FieldFaults([(error.pointer, _sentence(error.detail)) for error in invalid.errors]) from invalid
    except Invalid as error:
        raise FieldFaults([(error.facts["pointer"], _sentence(error.facts["detail"]))]) from error
    except AlreadyExists as error:
        raise FieldFaults([(field, f"There is another {error.facts['resource']} {error.facts['ref']}.")]) from error
    except CouponNotApplicable as error:
        raise FieldFaults([(field, _sentence(error.facts["why"]))]) from error
    except NotFound as error:
        raise FieldFaults([(field, f"There is no {error.facts['resource']} {error.facts['ref']}.")]) from error


def _sentence(detail: str) -> str:
    return f"{detail[:1].upper()}{detail[1:]}{'' if detail.endswith('.') else '.'}"
