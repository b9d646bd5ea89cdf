"""The buttons that show a document as PDF, and as e-invoice."""

from collections.abc import Callable

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect

from billing.documents.printing import PrintedDocument
from billing.errors import EInvoiceMissing, NotFound, SellerMissing
from ledger.errors import DocumentTooLong
from ledger.operators import staff_log
from ledger.typesetting.typeset import IS_INSTALLED, NO_GLYPH, NOT_INSTALLED

MOST_SHOWN = 10
NOT_CACHED = {"Cache-Control": "no-store"}


def pdf_view(request: HttpRequest, make: Callable[[], PrintedDocument], *, back: str) -> HttpResponse:
    """Show a document as a PDF; if it cannot be printed, return to the page of the button and give the reason there.

    Args:
        back: the address of that page.
    """
    if not IS_INSTALLED:
        messages.error(request, NOT_INSTALLED)
        return HttpResponseRedirect(back)
    try:
        printed = make()
    except NotFound as error:
        raise Http404 from error
    except SellerMissing as error:
        messages.error(
            request, f"{error.title}. Somebody with access to the server records one: manage.py seller --file seller.json"
        )
    except DocumentTooLong as error:
        messages.error(request, f"{error.title}: {error.facts['rows']} rows, at most {error.facts['limit']}")
    else:
        staff_log.record(request, "exported", about=printed.file_name)
        if printed.without_glyph:
            messages.warning(
                request,
                f"{printed.file_name} shows {NO_GLYPH} in place of {' '.join(printed.without_glyph[:MOST_SHOWN])}, which no font "
                "has. Add a font with LEDGER_DOCUMENT_FONTS, or change the text before the next document.",
            )
        headers = NOT_CACHED | {"Content-Disposition": f'inline; filename="{printed.file_name}"'}
        return HttpResponse(printed.content, content_type="application/pdf", headers=headers)
    return HttpResponseRedirect(back)


def e_invoice_view(request: HttpRequest, make: Callable[[], PrintedDocument], *, back: str) -> HttpResponse:
    """Give an operator the e-invoice of a document; if it has none, return to the page of the button and give the reasons there.

    Args:
        back: the address of that page.
    """
    if not IS_INSTALLED:
        messages.error(request, NOT_INSTALLED)
        return HttpResponseRedirect(back)
    try:
        made = make()
    except NotFound as error:
        raise Http404 from error
    except SellerMissing as error:
        messages.error(request, f"{error.title}.")
    except EInvoiceMissing as error:
        reasons = " ".join(f"{fault['rule']}: {fault['detail']}" for fault in error.facts["faults"])
        messages.error(request, f"{error.title}. {reasons}")
    else:
        staff_log.record(request, "exported", about=made.file_name)
        headers = NOT_CACHED | {"Content-Disposition": f'attachment; filename="{made.file_name}"'}
        return HttpResponse(made.content, content_type="application/xml", headers=headers)
    return HttpResponseRedirect(back)
