"""ETag, If-Match and If-None-Match: the number of the last entry names the state of an account.

Source: RFC 9110, 8.8.3 and 13.1.
"""

import re

from django.http import HttpRequest
from django.utils.http import parse_etags

from ledger.rest.kit.request_errors import FieldError, InvalidRequest
from ledger.values import MAX_SEQUENCE

_TAG = re.compile(r'"(0|[1-9][0-9]{0,18})"')


def etag(sequence: int) -> str:
    """Return the ETag of an account whose last entry has this number."""
    return f'"{sequence}"'


def expected_sequence(request: HttpRequest) -> int | None:
    """Return the entry that a write needs as the last, by its If-Match; None without If-Match, and for `*`, which any state
    matches.

    Raises:
        InvalidRequest: it is not one tag of a balance; a list or a weak tag cannot name the state that a client has seen.
    """
    sent = request.META.get("HTTP_IF_MATCH")
    if sent is None or sent.strip() == "*":
        return None
    match = _TAG.fullmatch(sent.strip())
    if match is None or int(match[1]) > MAX_SEQUENCE:
        raise InvalidRequest([FieldError("/If-Match", "not-a-tag", 'This must be the ETag of a balance, such as "7", or *.')])
    return int(match[1])


def is_known(request: HttpRequest, sequence: int) -> bool:
    """Return True if If-None-Match names this state, weakly compared. A tag that is not well-formed matches nothing."""
    sent_tags = request.META.get("HTTP_IF_NONE_MATCH")
    if not sent_tags:
        return False
    known = parse_etags(sent_tags)
    return known == ["*"] or etag(sequence) in [sent.removeprefix("W/") for sent in known]


def refuse_condition(request: HttpRequest) -> None:
    """Return, or raise `InvalidRequest` if the path has no single account whose state If-Match could name."""
    if "HTTP_IF_MATCH" in request.META:
        raise InvalidRequest([FieldError("/If-Match", "not-here", "If-Match needs a path of one account.")])
