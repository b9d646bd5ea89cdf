"""The provider of the how-to: its code as printed, against a service that answers as it expects."""

import json
import re
import sys
import threading
import types
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from django.conf import settings as django_settings

from billing import tax_asking
from billing.auditing import consistency
from billing.documents.sellers import record_seller
from billing.errors import TaxesRefused, TaxesUnavailable
from tests.billing.documents.issued import SELLER
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, recurring
from tests.billing.generator.run.test_generate import bill

pytestmark = pytest.mark.django_db
PAGE = Path(django_settings.BASE_DIR) / "docs/how-to/bring-a-tax-provider.md"
TAXES = {"id": "de", "name": "VAT", "rate": "19", "is_vat": True, "amount_minor": 1900, "country": "DE"}


class Acme(BaseHTTPRequestHandler):
    """Answers that every line bears VAT of Germany, unless it has another status."""

    status = 200
    asked: list = []

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(asked)
        answer = {"id": "calc-7", "lines": [{"taxes": [TAXES], "category": "O"} for _ in asked["lines"]]}
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(json.dumps({"reason": "no such place"} if self.status != 200 else answer).encode())

    def log_message(self, format, *args):  # noqa: A002 - its base names it so
        """Say nothing."""


@pytest.fixture
def acme(settings, monkeypatch):
    """The service, with the class of the page in shop.taxes."""
    [code] = [block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "class AcmeTax" in block]
    module = types.ModuleType("shop.taxes")
    monkeypatch.setitem(sys.modules, "shop.taxes", module)
    exec(compile(code, "shop/taxes.py", "exec"), vars(module))
    server = HTTPServer(("127.0.0.1", 0), Acme)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    settings.TAX_PROVIDER = {"class": "shop.taxes.AcmeTax", "url": f"http://127.0.0.1:{server.server_port}", "key": "k"}
    Acme.status, Acme.asked = 200, []
    tax_asking.ask_again_now()
    yield Acme
    tax_asking.ask_again_now()
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_provider_of_the_page_finds_taxes_refuses_and_is_down(acme):
    record_seller({**SELLER, "tax_rules": "provider"}, actor="test")
    plan = PlanFactory(prices=[recurring(unit_amount="100.00")])
    subscription = SubscriptionFactory(plan=plan.code, customer=CustomerFactory(address={"country": "DE"}).ref)
    for status, error in ((422, TaxesRefused), (503, TaxesUnavailable)):
        acme.status = status
        with pytest.raises(error):
            bill(subscription, at(1, 1))
    acme.status = 200
    tax_asking.ask_again_now()
    [made] = bill(subscription, at(1, 1))
    assert [(row["name"], row["amount_minor"]) for row in made["taxes"]] == [("VAT", 1900)]
    assert made["lines"][0]["rating"]["tax_answer"]["reference"] == "calc-7"
    assert acme.asked[-1]["lines"] == [{"amount_minor": 10_000, "includes_tax": False, "product": "standard"}]
    assert consistency.check() == []
