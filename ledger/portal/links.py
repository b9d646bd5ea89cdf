"""Links to a customer's page: signed, valid for a while, for one holder.

The token has everything that the page needs to know, so no link is stored. It is in the query of an address and not in its path:
the log of requests has paths, and never a query.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from django.core import signing
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from ledger import conf
from ledger.errors import Invalid
from ledger.records import Record
from ledger.typesetting.languages import LANGUAGES
from ledger.values import Boolean, Choice, CreditType, Holder, Integer, ListOf, Text

SALT: Final = "ledger/customer_page"
PARAMETER: Final = "link"
"""The name of the token in the query of an address."""
MAX_TOKEN_CHARACTERS: Final = 4_000
LEAST_SECONDS, MOST_SECONDS, SECONDS = 60, 86_400, 900
MOST_CREDIT_TYPES: Final = 20
MOST_PLANS, MOST_PLAN_CHARACTERS = 20, 64
NOT_SERVED: Final = 'The customer\'s page is not served: the project\'s URLs lack path("c/", include("ledger.portal.urls")).'


@dataclass(frozen=True, kw_only=True)
class LinkRequest(Record):
    """A link to the page of a holder."""

    holder_id: Annotated[str, Holder("The holder whose page it shows.")]
    expires_in: Annotated[int, Integer("After how many seconds the link ends.", least=LEAST_SECONDS, most=MOST_SECONDS)] = SECONDS
    hide_amounts: Annotated[bool, Boolean("Whether the page leaves out every amount, and PDFs, which have amounts.")] = False
    allow_payments: Annotated[
        bool,
        Boolean("Whether its reader may pay invoices, buy packs and set automatic top-ups there."),
    ] = False
    allow_plan_changes: Annotated[
        bool,
        Boolean("Whether its reader may cancel subscriptions at the end of their period there, and move them to `plans`."),
    ] = False
    plans: Annotated[
        list[str] | None,
        ListOf(
            Text("The ref of a plan.", least=1, most=MOST_PLAN_CHARACTERS),
            "With `allow_plan_changes`: the plans that are on offer there; by default none.",
            least=1,
            most=MOST_PLANS,
        ),
    ] = None
    language: Annotated[
        str | None,
        Choice([one.code for one in LANGUAGES], "The language of the page; by default the customer's, otherwise en."),
    ] = None
    credit_types: Annotated[
        list[str] | None,
        ListOf(CreditType("A credit type."), "Only these credit types; all by default.", least=1, most=MOST_CREDIT_TYPES),
    ] = None

    def check_whole(self) -> None:
        if self.allow_payments and self.hide_amounts:
            raise Invalid(pointer="/allow_payments", rule="not-both", detail="nobody pays an amount that is hidden")
        if self.allow_plan_changes and self.hide_amounts:
            raise Invalid(pointer="/allow_plan_changes", rule="not-both", detail="nobody takes a plan whose price is hidden")
        if self.plans is not None and not self.allow_plan_changes:
            raise Invalid(pointer="/plans", rule="not-alone", detail="belongs to a link with allow_plan_changes")


class PageLink(NamedTuple):
    """A link: the address of the page, the address of the same as JSON, and the end of both."""

    url: str
    data_url: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What a valid token says.

    Args:
        token: its text, for the addresses on the page.
        credit_types: the only credit types that are shown; empty for all.
        plans: the refs of the plans on offer, to which its reader may move subscriptions.
        step: the only step that it opens, with what follows from it, such as the payment of one invoice; empty: the whole page.
    """

    token: str
    holder_id: str
    expires_at: datetime
    hides_amounts: bool
    allows_payments: bool
    language: str | None
    credit_types: Sequence[str]
    allows_plan_changes: bool = False
    plans: Sequence[str] = ()
    step: str = ""

    @property
    def allows_actions(self) -> bool:
        """Whether the page has buttons."""
        return self.allows_payments or self.allows_plan_changes

    def address(self, view: str, *arguments: str, **query: Any) -> str:
        """Return the path of a view of the page, with the token."""
        return f"{reverse(f'customer_page:{view}', args=arguments)}?{urlencode({**query, PARAMETER: self.token})}"

    def address_from_outside(self, request: HttpRequest, view: str, *arguments: str, **query: Any) -> str:
        """Return the address of a view of the page with its host, for another site that sends the customer back."""
        return f"{_address(view, request, *arguments)}?{urlencode({**query, PARAMETER: self.token})}"


def is_served() -> bool:
    """Return whether the project's URLs include the page."""
    try:
        reverse("customer_page:page")
    except NoReverseMatch:
        return False
    return True


def link(*, request: HttpRequest | None = None, **fields: Any) -> PageLink:
    """Make a link to a holder's page. It is stored nowhere.

    Args:
        request: whose host the addresses get if the setting CUSTOMER_PAGE_URL is empty; None: they have no host.
        fields: of `LinkRequest`.

    Raises:
        Invalid: a field has a wrong value.
        ImproperlyConfigured: the project does not serve the page.
    """
    return link_of(LinkRequest(**fields), request)


def link_of(asked: LinkRequest, request: Any = None) -> PageLink:
    """Make the link that was asked for. Args, Raises: as `link`."""
    if not is_served():
        raise ImproperlyConfigured(NOT_SERVED)
    ends = int(timezone.now().timestamp()) + asked.expires_in
    claims = {"h": asked.holder_id, "e": ends, "a": asked.hide_amounts, "l": asked.language, "t": asked.credit_types or []}
    if asked.allow_payments:
        claims["p"] = True
    if asked.allow_plan_changes:
        claims["c"] = asked.plans or []
    query = urlencode({PARAMETER: _signer().sign_object(claims)})
    page, data = (f"{_address(name, request)}?{query}" for name in ("page", "data"))
    return PageLink(page, data, datetime.fromtimestamp(ends, UTC))


def step_link(holder_id: str, step: str, *, expires_at: datetime, language: str) -> str | None:
    """Return the address of one step, for a mail: who has it sees and does nothing else. It is stored nowhere.

    Returns:
        None if the project does not serve the page, or the setting CUSTOMER_PAGE_URL is empty: a mail has no request whose host
        the address could get.
    """
    if not (conf.CUSTOMER_PAGE_URL.value and is_served()):
        return None
    claims = {"h": holder_id, "e": int(expires_at.timestamp()), "a": False, "l": language, "t": [], "p": True, "s": step}
    return f"{_address('step', None, step)}?{urlencode({PARAMETER: _signer().sign_object(claims)})}"


def read_link(token: str) -> Link | None:
    """Return what a token says; None if it was not signed here, was changed, or has ended."""
    if not token or len(token) > MAX_TOKEN_CHARACTERS:
        return None
    try:
        claims = _signer().unsign_object(token)
    except signing.BadSignature:
        return None
    expires_at = datetime.fromtimestamp(claims["e"], UTC)
    if timezone.now() >= expires_at:
        return None
    return Link(
        token=token,
        holder_id=claims["h"],
        expires_at=expires_at,
        hides_amounts=claims["a"],
        allows_payments=claims.get("p", False),
        language=claims["l"],
        credit_types=claims["t"],
        allows_plan_changes="c" in claims,
        plans=claims.get("c", ()),
        step=claims.get("s", ""),
    )


def _signer() -> signing.Signer:
    """The signer, by SECRET_KEY and SECRET_KEY_FALLBACKS; another value of the setting is another salt."""
    return signing.Signer(sep=".", salt=f"{SALT}.{conf.CUSTOMER_PAGE_SALT.value}")


def _address(name: str, request: Any, *arguments: str) -> str:
    path = reverse(f"customer_page:{name}", args=arguments)
    base = conf.CUSTOMER_PAGE_URL.value
    if base:
        return base.rstrip("/") + "/" + path.removeprefix(reverse("customer_page:page"))
    return path if request is None else f"{request.scheme}://{request.get_host()}{path}"


def is_origin(text: str) -> bool:
    """Return whether a text is the origin of pages, such as https://shop.example or http://localhost:3000."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    host = parts.hostname or ""
    is_name = host.isascii() and host.replace("-", "").replace(".", "").isalnum()
    return (
        is_name and text == f"{parts.scheme}://{host}{'' if port is None else f':{port}'}" and parts.scheme in ("https", "http")
    )
