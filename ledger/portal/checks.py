"""What a project that includes the page has to have, beside its address."""

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as CheckWarning
from django.template import TemplateDoesNotExist
from django.template.loader import get_template

from ledger import conf
from ledger.portal.links import is_origin, is_served


def check_page(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """Report what keeps the page from being shown: ledger.W003 and W004, and wrong values of its settings: E005 and E006."""
    check_messages: list[CheckMessage] = []
    for origin in conf.CUSTOMER_PAGE_FRAMED_BY.value:
        if not is_origin(origin):
            what = f"settings.LEDGER['CUSTOMER_PAGE_FRAMED_BY'] has {origin!r}, which is not an origin such as 'https://shop.example'."
            check_messages.append(Error(what, id="ledger.E005"))
    address = conf.CUSTOMER_PAGE_URL.value
    if address and not address.startswith(("https://", "http://")):
        what = f"settings.LEDGER['CUSTOMER_PAGE_URL'] is {address!r}: it must begin with https:// or http://."
        check_messages.append(Error(what, id="ledger.E006"))
    if not is_served():
        return check_messages
    if not settings.STATIC_URL:
        hint = "Put 'django.contrib.staticfiles' into INSTALLED_APPS, and set STATIC_URL."
        check_messages.append(CheckWarning("The customer's page has no address for its style.", hint=hint, id="ledger.W003"))
    try:
        get_template("ledger/portal/page.html")
    except TemplateDoesNotExist:
        hint = "Add DjangoTemplates with APP_DIRS to TEMPLATES."
        check_messages.append(CheckWarning("The customer's page has no template.", hint=hint, id="ledger.W004"))
    return check_messages
