"""The views of the page. A valid link shows one holder; any other link shows that it has expired."""

from collections.abc import Callable
from threading import BoundedSemaphore
from typing import Any, Final
from urllib.parse import urlsplit

from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.shortcuts import render
from django.templatetags.static import static
from django.views.decorators.csrf import csrf_exempt

from ledger import conf
from ledger.errors import LedgerError
from ledger.portal.content import Content, read_content
from ledger.portal.links import PARAMETER, Link, is_origin, read_link
from ledger.portal.parts import customer_of
from ledger.portal.shown import BEFORE, HISTORY, LOTS, context_of
from ledger.portal.texts import TEXTS
from ledger.values import with_exact_integers

METHODS: Final = ("GET", "HEAD")
STYLE: Final = "ledger/customer_page.css"
MAX_DIGITS: Final = 18
MOST_DOCUMENTS: Final = 2
"""How many documents each process makes for customers at the same time: the compiler uses all cores for one."""
BUSY_SECONDS: Final = 2

_documents = BoundedSemaphore(MOST_DOCUMENTS)

View = Callable[..., HttpResponse]


def by_link(view: Callable[..., HttpResponse]) -> View:
    """Call the view with the link of the request, and give its response the headers of the page.

    A link that was not made here, was changed or has ended is answered before anything is read, always with the same page.
    """

    def answer(request: HttpRequest, **captured: Any) -> HttpResponse:
        if request.method not in METHODS:
            return _with_headers(HttpResponseNotAllowed(METHODS))
        link = read_link(request.GET.get(PARAMETER, ""))
        return _with_headers(_gone(request) if link is None else view(request, link, **captured))

    # No form is sent here: any other method is a 405, with a token of a form or without.
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
    """Return a PDF of the customer; none where amounts are hidden."""
    customer = None if link.hides_amounts else customer_of(link.holder_id)
    if customer is None:
        return _gone(request)
    if not _documents.acquire(blocking=False):
        return HttpResponse(status=503, headers={"Retry-After": str(BUSY_SECONDS)})
    try:
        found = customer.document(name)
    except LedgerError:  # it cannot be printed, such as an invoice without a seller
        found = None
    finally:
        _documents.release()
    if found is None:
        return _gone(request)
    file = f'attachment; filename="{found.file_name}"'
    return HttpResponse(found.content, content_type="application/pdf", headers={"Content-Disposition": file})


def _content(request: HttpRequest, link: Link) -> Content:
    """Read what the address names: an account, and where each list begins. What is no number begins at the beginning."""
    given = {name: request.GET.get(name, "") for name in request.GET}
    numbers = {name: int(text) for name, text in given.items() if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS}
    return read_content(
        link,
        credit_type=request.GET.get("type"),
        before=numbers.get(HISTORY),
        lots_from=numbers.get(LOTS, 0),
        sections_before={name.removesuffix(BEFORE): number for name, number in numbers.items() if name.endswith(BEFORE)},
    )


def _gone(request: HttpRequest) -> HttpResponse:
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
        "form-action": "'none'",
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
