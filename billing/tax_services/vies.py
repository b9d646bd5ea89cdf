"""A client of VIES, the EU's service that says whether a VAT id is valid.

Only `valid: false` says that an id is not. Whatever is no answer, such as an error, a time-out or a text that is not JSON, leaves
the outcome `unavailable`: nobody is refused because a service is down.

Source: VIES on the Web, technical information, `POST /check-vat-number` of its REST service.
"""

import asyncio
import json
import re
import ssl
import threading
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

from billing.orders.vat_lookups import VatAnswer
from billing.rating.vat import LookupOutcome
from ledger import conf

WRITE_TIMEOUT_S: Final = 5
"""Of a lookup for which a write waits."""
AT_ONCE: Final = 4
"""How many lookups one process has under way: a write waits in a thread, and the other threads serve others."""
MAX_BYTES: Final = 64 * 1024
MAX_NAME_CHARACTERS: Final = 500
MAX_ADDRESS_CHARACTERS: Final = 1000
NOT_SAID: Final = "---"
"""For a name or an address that a member state does not give."""
CODE: Final = re.compile("[A-Z][A-Z0-9_]{0,63}")
CONSULTATION: Final = re.compile("[A-Za-z0-9_-]{1,64}")

TIME_OUT: Final = "NO_ANSWER_IN_TIME"
NO_CONNECTION: Final = "NO_CONNECTION"
UNREADABLE: Final = "UNREADABLE_ANSWER"
TOO_MANY: Final = "TOO_MANY_LOOKUPS"
OF_THE_SERVICE: Final = frozenset({TIME_OUT, NO_CONNECTION, "SERVICE_UNAVAILABLE", "GLOBAL_MAX_CONCURRENT_REQ", "IP_BLOCKED"})
"""Errors after which the next request would fail too, whatever the member state."""

_free: Final = threading.BoundedSemaphore(AT_ONCE)


def look_up(vat_id: str, *, requester: str = "", timeout_s: float = WRITE_TIMEOUT_S) -> VatAnswer:
    """Ask VIES about a VAT id of the EU, once; never raises. It opens no transaction, and takes no lock of the database.

    Args:
        vat_id: as `checked_vat_id` returns it.
        requester: the seller's VAT id; empty: nobody's.
        timeout_s: within which the whole answer must be here.
    """
    asked_at = datetime.now(UTC)
    if not _free.acquire(blocking=False):
        answer: dict[str, Any] = {"error": TOO_MANY}
    else:
        try:
            answer = read_answer(*asyncio.run(_ask(_body(vat_id, requester), timeout_s)), vat_id=vat_id)
        except _NoAnswer as error:
            answer = {"error": str(error)}
        finally:
            _free.release()
    outcome = answer.pop("outcome", LookupOutcome.UNAVAILABLE)
    return VatAnswer(vat_id=vat_id, outcome=outcome, asked_at=asked_at, requester=requester, **answer)


class _NoAnswer(Exception):
    """No whole answer came; says why, by a code."""


def _body(vat_id: str, requester: str) -> dict[str, str]:
    body = {"countryCode": vat_id[:2], "vatNumber": vat_id[2:]}
    return body | ({"requesterMemberStateCode": requester[:2], "requesterNumber": requester[2:]} if requester else {})


async def _ask(body: dict[str, str], timeout_s: float) -> tuple[int, bytes]:
    # The package is an extra: only deployments that look VAT ids up need it.
    import httpx

    url = f"{conf.VIES_URL.value.rstrip('/')}/check-vat-number"
    headers = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "credit-ledger"}
    try:
        # To the host of the setting only: no redirect is followed, and no proxy taken from the environment.
        client = httpx.AsyncClient(verify=_trusted_context(), follow_redirects=False, trust_env=False, timeout=timeout_s)
        async with asyncio.timeout(timeout_s), client, client.stream("POST", url, json=body, headers=headers) as answer:
            content = b""
            async for chunk in answer.aiter_raw():
                content += chunk
                if len(content) > MAX_BYTES:
                    raise _NoAnswer(UNREADABLE)
            return answer.status_code, content
    except (TimeoutError, httpx.TimeoutException):
        raise _NoAnswer(TIME_OUT) from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError):
        raise _NoAnswer(NO_CONNECTION) from None


@cache
def _trusted_context() -> ssl.SSLContext:
    """The authorities whose certificates are trusted; reading them takes 20 ms."""
    import httpx

    return httpx.create_ssl_context(trust_env=False)


# The answer ------------------------------------------------------------------------------------------


def read_answer(status: int, content: bytes, *, vat_id: str) -> dict[str, Any]:
    """Return the members of a lookup that an answer of VIES determines."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return {"error": UNREADABLE if status == 200 else f"HTTP_{status}"}
    if not isinstance(body, dict) or (status == 200 and not _says_something(body, vat_id)):
        return {"error": UNREADABLE}
    if status != 200 or _code_of(body):
        return {"error": _code_of(body) or f"HTTP_{status}"}
    if not body["valid"]:
        return {"outcome": LookupOutcome.INVALID, "consultation": _consultation(body)}
    return {
        "outcome": LookupOutcome.VALID,
        "consultation": _consultation(body),
        "name": _text(body.get("name"), MAX_NAME_CHARACTERS),
        "address": _text(body.get("address"), MAX_ADDRESS_CHARACTERS),
    }


def _says_something(body: dict[str, Any], vat_id: str) -> bool:
    """Return whether it is an error, or says yes or no about this id."""
    about = f"{body.get('countryCode', '')}{body.get('vatNumber', '')}"
    return bool(_code_of(body)) or (isinstance(body.get("valid"), bool) and about == vat_id)


def _code_of(body: dict[str, Any]) -> str:
    """Return the code of an error, such as MS_UNAVAILABLE; empty if there is none. With one, `valid` says nothing."""
    errors = body.get("errorWrappers")
    first = errors[0] if isinstance(errors, list) and errors else None
    code = first.get("error") if isinstance(first, dict) else body.get("userError")
    return code if isinstance(code, str) and CODE.fullmatch(code) and code not in ("VALID", "INVALID") else ""


def _consultation(body: dict[str, Any]) -> str:
    number = body.get("requestIdentifier")
    return number if isinstance(number, str) and CONSULTATION.fullmatch(number) else ""


def _text(value: Any, most: int) -> str:
    """Return a text of VIES in one line, as it can be stored and shown; lines are separated by commas."""
    if not isinstance(value, str) or value.strip() == NOT_SAID:
        return ""
    lines = ("".join(each if each.isprintable() else " " for each in line).strip() for line in value.splitlines())
    return ", ".join(filter(None, lines))[:most]
