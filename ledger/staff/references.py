"""The rows to which fields of forms refer: what a field lists at first, and what it finds while somebody types.

Note [A list that works without scripts]
    A field is a text with a list of the browser's own (`datalist`): it works by keyboard, and without scripts it offers the rows
    that came with the page. A script asks here for what fits the typed text, so each row is found, however old. A field never
    decides: what is unknown is refused where the request is read, at the field.
"""

from collections.abc import Sequence
from typing import Final

from django.http import HttpRequest, HttpResponse, HttpResponseNotFound, JsonResponse
from django.urls import URLPattern, path

from ledger.database.statements import fetch_rows
from ledger.models import CreditType
from ledger.operators import additions
from ledger.operators.additions import ReferenceList, Row
from ledger.operators.permissions import VIEW_ACCOUNT, VIEW_CREDITTYPE, VIEW_RATELISTING
from ledger.reads.holder_list import BEHIND_ALL_CHARACTERS
from ledger.staff.history import never_reading_whole_tables
from ledger.staff.kit.pages import ReadOnlyAdmin
from ledger.staff.spelling import begins, words_of
from ledger.values import zones

NAME: Final = "ledger_references"
MOST_LISTED: Final = 300
"""How many rows come with a page."""
MOST_FOUND: Final = 20
"""How many rows a search returns."""
NAMES_READ: Final = 500
MOST_CODES: Final = 10_000
"""How many codes of rates, and how many credit types, a search looks at."""
LONGEST: Final = 255

# From first entry to first entry, by their index: the cost grows with the page, not with the number of holders.
HOLDERS = """
SELECT DISTINCT holder_id
FROM ledger_entry
WHERE sequence = 1 AND holder_id >= %s AND holder_id < %s
ORDER BY holder_id
LIMIT %s
"""

# From rate to rate, and from type to type, by the primary key of versions: the cost does not grow with the versions.
CODES = """
WITH RECURSIVE codes AS (
    (SELECT credit_type, code FROM ledger_rate ORDER BY credit_type, code LIMIT 1)
    UNION ALL
    SELECT following.credit_type, following.code
    FROM codes CROSS JOIN LATERAL (
        SELECT r.credit_type, r.code FROM ledger_rate AS r
        WHERE (r.credit_type, r.code) > (codes.credit_type, codes.code)
        ORDER BY r.credit_type, r.code
        LIMIT 1
    ) AS following
)
SELECT code FROM codes LIMIT %s
"""
PRICED_TYPES = """
WITH RECURSIVE types AS (
    (SELECT credit_type FROM ledger_rate ORDER BY credit_type LIMIT 1)
    UNION ALL
    SELECT following.credit_type
    FROM types CROSS JOIN LATERAL (
        SELECT r.credit_type FROM ledger_rate AS r WHERE r.credit_type > types.credit_type ORDER BY r.credit_type LIMIT 1
    ) AS following
)
SELECT credit_type FROM types LIMIT %s
"""


def url(model_admin: ReadOnlyAdmin) -> URLPattern:
    """Return the address of the searches in lists."""
    return path("references/<str:noun>/", model_admin.admin_site.admin_view(find_rows), name=NAME)


def find_rows(request: HttpRequest, noun: str) -> HttpResponse:
    """Respond with the rows of that noun that fit the text `s`; with none for what the operator may not see."""
    listed, word = additions.references().get(noun), request.GET.get("s", "").strip()
    if listed is None:
        return HttpResponseNotFound()
    may_see = listed.permission is None or request.user.has_perm(listed.permission)
    rows = listed.list_rows(word) if may_see and len(word) <= LONGEST and "\x00" not in word else ()
    return JsonResponse({"rows": [list(row) for row in rows]}, headers={"Cache-Control": "private, no-store"})


def list_holders(word: str) -> Sequence[Row]:
    """Return holders whose ids begin with the word, by their ids."""
    with never_reading_whole_tables():
        most = MOST_FOUND if word else MOST_LISTED
        return [(holder_id, "") for holder_id in fetch_rows(str, HOLDERS, [word, word + BEHIND_ALL_CHARACTERS, most])]


def list_credit_types(word: str) -> Sequence[Row]:
    """Return the credit types that have a name or a rate."""
    most = MOST_CODES if word else MOST_LISTED
    named = dict(CreditType.objects.order_by("code").values_list("code", "name")[:most])
    priced = dict.fromkeys(fetch_rows(str, PRICED_TYPES, [most]), "")
    return _fitting(sorted({**priced, **named}.items()), word)


def list_rates(word: str) -> Sequence[Row]:
    """Return the codes of rates, whatever the number of their versions."""
    codes = fetch_rows(str, CODES, [MOST_CODES if word else MOST_LISTED])
    return _fitting([(code, "") for code in dict.fromkeys(codes)], word)


def list_time_zones(word: str) -> Sequence[Row]:
    """Return the zones of places, and UTC."""
    places = sorted(zone for zone in zones() if "/" in zone and not zone.startswith("Etc/"))
    return [(zone, "") for zone in ["UTC", *places] if begins(words_of(word), words_of(zone))]


def _fitting(rows: Sequence[Row], word: str) -> Sequence[Row]:
    typed = words_of(word)
    return [row for row in rows if begins(typed, words_of(" ".join(row)))][: MOST_FOUND if word else MOST_LISTED]


OWN: Final = {
    "holder_id": ReferenceList(list_holders, VIEW_ACCOUNT),
    "credit_type": ReferenceList(list_credit_types, VIEW_CREDITTYPE),
    "time_zone": ReferenceList(list_time_zones),
    "rate_code": ReferenceList(list_rates, VIEW_RATELISTING),
}


def register() -> None:
    """Offer the ledger's own rows to all forms."""
    for name, listed in OWN.items():
        additions.register_references(name, listed)
