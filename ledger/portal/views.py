"""The views of the page. A valid link shows one holder; any other link shows that it has expired."""

from collections.abc import Callable, Sequence
from functools import partial
from threading import BoundedSemaphore
from typing import Any, Final
from urllib.parse import urlsplit

from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.templatetags.static import static
from django.views.decorators.csrf import csrf_exempt

from ledger import conf
from ledger.errors import LedgerError
from ledger.json_values import with_exact_integers
from ledger.portal.content import BACK, Content, page_language, read_content, shown_of
from ledger.portal.links import PARAMETER, Link, is_origin, read_link
from ledger.portal.parts import Document, IntermediatePage, PageDisplay, PortalCustomer, account_parts, customer_of
from ledger.portal.shown import BEFORE, HISTORY, LOTS, context_of
from ledger.portal.texts import TEXTS

METHODS: Final = ("GET", "HEAD")
STYLE: Final = "ledger/customer_page.css"
MAX_DIGITS: Final = 18
MOST_DOCUMENTS: Final = 2
"""How many documents each process makes for customers at the same time: the compiler uses all cores for one."""
BUSY_SECONDS: Final = 2

_documents = BoundedSemaphore(MOST_DOCUMENTS)

View = Callable[..., HttpResponse]


def by_link(view: Callable[..., HttpResponse], methods: Sequence[str] = METHODS, *, is_of_steps: bool = False) -> View:
    """Call the view with the link of the request, and give its response the headers of the page.

    A link that was not made here, was changed or has ended is answered before anything is read, always with the same page.

    Args:
        is_of_steps: a link to one step opens this view too.
    """

    def answer(request: HttpRequest, **captured: Any) -> HttpResponse:
        if request.method not in methods:
            return _with_headers(HttpResponseNotAllowed(methods))
        link = read_link(request.GET.get(PARAMETER, ""))
        is_open = link is not None and (is_of_steps or not link.step)
        return _with_headers(view(request, link, **captured) if is_open else _gone_page(request))

    # A browser adds nothing to a request by itself: the token of the link is in the address, and there is no cookie.
    return csrf_exempt(answer)


@by_link
def page(request: HttpRequest, link: Link) -> HttpResponse:
    """Show the page."""
    context = context_of(_content(request, link), link, continued=[name for name in request.GET if name != PARAMETER])
    return render(request, "ledger/portal/page.html", context | {"style": STYLE})


@by_link
def data(request: HttpRequest, link: Link) -> HttpResponse:
    """Return what the page shows, as JSON."""
    return JsonResponse(with_exact_integers(_content(request, link).data))


@by_link
def document(request: HttpRequest, link: Link, name: str) -> HttpResponse:
    """Return a PDF of the customer or of an account; none where amounts are hidden."""
    if link.hides_amounts:
        return _gone_page(request)
    if not _documents.acquire(blocking=False):
        return HttpResponse(status=503, headers={"Retry-After": str(BUSY_SECONDS)})
    try:
        found = _find_document(link, name)
    except LedgerError:  # it cannot be printed, such as an invoice without a seller
        found = None
    finally:
        _documents.release()
    if found is None:
        return _gone_page(request)
    file = f'attachment; filename="{found.file_name}"'
    return HttpResponse(found.content, content_type="application/pdf", headers={"Content-Disposition": file})


def _find_document(link: Link, name: str) -> Document | None:
    customer = customer_of(link.holder_id)
    language = page_language(link, customer)
    makers = [partial(part.document, link.holder_id, name, link.credit_types, language) for part in account_parts()]
    if customer is not None:
        makers.append(partial(customer.document, name))
    return next((found for found in (make() for make in makers) if found is not None), None)


def _act(request: HttpRequest, link: Link, name: str) -> HttpResponse:
    """Do what a button of the page says, then show the step that follows, or the page."""
    customer = customer_of(link.holder_id) if link.allows_actions else None
    if customer is None:
        return _gone_page(request)
    shown = shown_of(link, request, page_language(link, customer))
    try:
        following = customer.act(name, request.POST.dict(), shown)
    except LedgerError:
        texts = TEXTS[shown.language.code]
        return _step_page(
            request, link, customer, shown, IntermediatePage(title=texts["refused_title"], text=texts["refused"]), status=409
        )
    if following is None:
        return _gone_page(request)
    if isinstance(following, IntermediatePage):
        return _step_page(request, link, customer, shown, following, status=409 if following.is_refusal else 200)
    return _see_other(link.address("step", following) if following else link.address("page"))


action = by_link(_act, methods=("POST",), is_of_steps=True)


def _step(request: HttpRequest, link: Link, name: str) -> HttpResponse:
    """Show a step. One that loads itself again, or goes on to another site, does so without a script."""
    customer = customer_of(link.holder_id) if link.allows_actions else None
    if customer is None:
        return _gone_page(request)
    shown = shown_of(link, request, page_language(link, customer))
    try:
        found = customer.step(name, shown, is_back=BACK in request.GET)
    except LedgerError:  # what only another site knows, and it does not answer now
        texts = TEXTS[shown.language.code]
        unavailable = IntermediatePage(title=texts["unavailable_title"], text=texts["unavailable"])
        return _step_page(request, link, customer, shown, unavailable, status=503)
    return _gone_page(request) if found is None else _step_page(request, link, customer, shown, found)


step = by_link(_step, is_of_steps=True)


def _step_page(
    request: HttpRequest, link: Link, customer: PortalCustomer, shown: PageDisplay, found: IntermediatePage, status: int = 200
) -> HttpResponse:
    context = {
        "step": found,
        "texts": TEXTS[shown.language.code],
        "language": shown.language.code,
        "name": customer.name or link.holder_id,
        "page_url": link.address("step", link.step) if link.step else link.address("page"),
        "style": STYLE,
    }
    response = render(request, "ledger/portal/step.html", context, status=status)
    # Another site shows no checkout in a frame, so a page in a frame leaves going on to the customer.
    if found.goes_on and request.headers.get("Sec-Fetch-Dest", "document") == "document":
        response["Refresh"] = f"0; url={found.next_url}"
    elif found.reload_seconds is not None:
        response["Refresh"] = str(found.reload_seconds)
    return response


def _see_other(address: str) -> HttpResponse:
    response = HttpResponseRedirect(address)
    response.status_code = 303
    return response


def _content(request: HttpRequest, link: Link) -> Content:
    """Read what the address names: an account, and where each list begins. What is no number begins at the beginning."""
    given = {name: request.GET.get(name, "") for name in request.GET}
    numbers = {name: int(text) for name, text in given.items() if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS}
    return read_content(
        link,
        request,
        credit_type=request.GET.get("type"),
        before=numbers.get(HISTORY),
        lots_from=numbers.get(LOTS, 0),
        sections_before={name.removesuffix(BEFORE): number for name, number in numbers.items() if name.endswith(BEFORE)},
    )


def _gone_page(request: HttpRequest) -> HttpResponse:
    """The page that says so, in every language: nothing is known about its reader."""
    context = {"languages": [(code, texts["gone_title"], texts["gone"]) for code, texts in TEXTS.items()], "style": STYLE}
    return render(request, "ledger/portal/gone.html", context, status=410)


def _with_headers(response: HttpResponse) -> HttpResponse:
    """Let no cache, search engine or other page keep or show it, and let it fetch nothing but its style."""
    origins = [origin for origin in conf.CUSTOMER_PAGE_FRAMED_BY.value if is_origin(origin)]
    style = urlsplit(static(STYLE))
    policy = {
        "default-src": "'none'",
        "style-src": f"{style.scheme}://{style.netloc}" if style.netloc else "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": " ".join(origins) or "'none'",
    }
    response["Content-Security-Policy"] = "; ".join(f"{name} {value}" for name, value in policy.items())
    response["Cache-Control"] = "no-store"
    response["Referrer-Policy"] = "no-referrer"
    response["X-Robots-Tag"] = "noindex, nofollow, noarchive"
    response["X-Content-Type-Options"] = "nosniff"
    if origins:
        response.xframe_options_exempt = True
    else:
        response["X-Frame-Options"] = "DENY"
    return response
