"""Stands in for providers of taxes: a class of Python, and an HTTP server that computes as Stripe Tax does."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

from billing.orders.tax_policies import policy_from
from billing.rating.money import round_half_up
from billing.rating.tax_amounts import tax_minor, without_tax
from billing.rating.tax_sales import FoundTax, LineTaxes, Sale, SaleLine, TaxProvider

Tax = tuple[str, str, str]
"""A code, a rate, a category."""
GST, QST, VAT = ("ca-gst", "5", "O"), ("ca-qst", "9.975", "O"), ("de-vat", "19", "S")


class StandIn(TaxProvider):
    """Taxes by the country of the buyer, and what it was asked for."""

    name: ClassVar[str] = "stand-in"
    taxes: ClassVar[dict[str, Sequence[Tax]]] = {}
    asked: ClassVar[list[Sale]] = []
    on_ask: ClassVar[Callable[[Sale], Any]] = lambda sale: None
    off_minor: ClassVar[int] = 0
    """By how much its amounts are wrong."""

    @classmethod
    def reset(cls) -> None:
        """Forget what it was asked for, and behave well."""
        cls.taxes = {"CA": [GST, QST], "DE": [VAT]}
        cls.asked, cls.off_minor, cls.on_ask = [], 0, lambda sale: None

    def taxes_of(self, sale: Sale) -> Sequence[LineTaxes]:
        type(self).asked.append(sale)
        instead = type(self).on_ask(sale)
        return instead if instead is not None else [self._line(sale, position) for position in range(len(sale.lines))]

    def _line(self, sale: Sale, position: int) -> LineTaxes:
        line, due = sale.lines[position], self.taxes.get(sale.buyer.country, ())
        if sale.vat_status != "taxable":
            return LineTaxes(category={"exempt": "E", "reverse_charge": "AE"}[sale.vat_status], reference="calc")
        net = line.amount_minor
        if line.includes_tax:
            [net] = without_tax([net], sum((Decimal(rate) for _, rate, _ in due), Decimal(0)))
        return LineTaxes(
            taxes=tuple(
                FoundTax(
                    code,
                    code.upper(),
                    Decimal(rate),
                    category,
                    tax_minor(net, Decimal(rate)) + self.off_minor,
                    sale.buyer.country,
                )
                for code, rate, category in due
            ),
            reference=f"calc-{len(self.asked)}",
        )


class DeclaredTaxes(TaxProvider):
    """Finds what is declared for the buyer's address: documents are those of a seller whose rules find it."""

    name: ClassVar[str] = "declared-elsewhere"

    def taxes_of(self, sale: Sale) -> Sequence[LineTaxes]:
        buyer = {"address": sale.buyer._asdict(), "vat_id": sale.buyer.vat_id, "vat_status": sale.vat_status.value}
        rules = policy_from({"tax_rules": "region", "country": sale.seller.country}, buyer, "UTC")
        return [self._found(line, answer) for line, answer in zip(sale.lines, rules.taxes_of(sale), strict=True)]

    def _found(self, line: SaleLine, answer: LineTaxes) -> LineTaxes:
        net = line.amount_minor
        if line.includes_tax:
            [net] = without_tax([net], answer.taxed.included_rate)
        taxes = tuple(
            one._replace(name=one.code, tax_id=None, amount_minor=tax_minor(net, one.rate), country="CA") for one in answer.taxes
        )
        return LineTaxes(taxes=taxes, category=answer.category if not taxes else "O")


PLACES = {
    "CA": [("country", "Canada", "gst", "GST", "5"), ("state", "Quebec", "qst", "QST", "9.975")],
    "US": [("state", "New York", "sales_tax", "Sales Tax", "4"), ("city", "New York City", "sales_tax", "Sales Tax", "4.5")],
    "DE": [("country", "Germany", "vat", "VAT", "19")],
    "JP": [("country", "Japan", "jct", "Consumption Tax", "10")],
    "KW": [("country", "Kuwait", "vat", "VAT", "5")],
}


class StripeTaxDouble:
    """The calculations that were asked for, by id, and how it behaves."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.reason = ""
        """Why no tax is due; empty: taxes are due."""
        self.part = 100
        """The percent of a line on which taxes are due."""
        self.fee = 0
        """A tax of each line that is no percentage."""
        self.fault = ""
        """`down` answers 503, `refused` 400, `garbage` no JSON of Stripe's, `key` 401."""
        self.on_ask: Callable[[], None] = lambda: None
        """Called before a calculation is made."""
        self.killed_at: dict[str, Callable[[], None]] = {}
        """By the method: called when a request is executed, before it is answered."""

    def respond(self, method: str, path: str, fields: dict[str, str]) -> tuple[int, Any]:
        """Answer a request."""
        if method == "POST":
            self.on_ask()
        answer = self._answer(method, path, fields)
        self.killed_at.get(method, lambda: None)()
        return answer

    def _answer(self, method: str, path: str, fields: dict[str, str]) -> tuple[int, Any]:
        if self.fault:
            error = {"type": "invalid_request_error", "message": "The customer's location isn't recognized."}
            key = {"type": "invalid_request_error", "message": "Invalid API Key"}
            return {"down": (503, {}), "refused": (400, {"error": error}), "garbage": (200, {"id": "x"}),
                    "key": (401, {"error": key})}[self.fault]  # fmt: skip
        if method == "POST":
            self.asked.append(fields)
            return 200, {"id": f"taxcalc_{len(self.asked)}", "object": "tax.calculation"}
        asked = self.asked[int(path.split("/")[4].removeprefix("taxcalc_")) - 1]
        rows = [self._row(asked, position) for position in range(sum("[reference]" in name for name in asked))]
        # As a list is in no promised order.
        return 200, {"object": "list", "data": rows[::-1], "has_more": False, "url": path}

    def _row(self, asked: dict[str, str], position: int) -> dict[str, Any]:
        item = {name: asked.get(f"line_items[{position}][{name}]", "") for name in ("amount", "reference", "tax_behavior")}
        amount, country = int(item["amount"]), asked["customer_details[address][country]"]
        rates = [] if self.reason else [Decimal(place[4]) for place in PLACES[country]]
        net = amount
        if item["tax_behavior"] == "inclusive":
            [net] = without_tax([amount], sum(rates, Decimal(0)))
        base = net * self.part // 100
        breakdown: list[dict[str, Any]] = [
            {
                "amount": round_half_up(base * Decimal(rate) / 100), "taxable_amount": base, "sourcing": "destination",
                "taxability_reason": "standard_rated",
                "jurisdiction": {"country": country, "level": level, "display_name": place,
                                 "state": {"Quebec": "QC", "New York": "NY", "New York City": "NY"}.get(place)},
                "tax_rate_details": {"display_name": name, "percentage_decimal": rate, "tax_type": kind},
            }
            for level, place, kind, name, rate in ([] if self.reason else PLACES[country])
        ]  # fmt: skip
        if self.reason:
            where = {"country": country, "level": "country", "display_name": country, "state": None}
            breakdown = [{"amount": 0, "taxable_amount": 0, "sourcing": "destination", "taxability_reason": self.reason,
                          "jurisdiction": where, "tax_rate_details": None}]  # fmt: skip
        if self.fee:
            breakdown.append({
                "amount": self.fee, "taxable_amount": base, "sourcing": "destination", "taxability_reason": "standard_rated",
                "jurisdiction": {"country": "US", "level": "state", "display_name": "Colorado", "state": "CO"},
                "tax_rate_details": {"display_name": "Retail Delivery Fee", "percentage_decimal": "0.0",
                                     "tax_type": "retail_delivery_fee"},
            })  # fmt: skip
        return {
            "id": f"li_{position}", "object": "tax.calculation_line_item", "amount": amount, "reference": item["reference"],
            "amount_tax": sum(one["amount"] for one in breakdown), "tax_behavior": item["tax_behavior"],
            "tax_breakdown": breakdown,
        }  # fmt: skip


@contextmanager
def serving(double: StripeTaxDouble) -> Iterator[str]:
    """Serve it on loopback; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._respond("GET", dict(parse_qsl(urlsplit(self.path).query)))

        def do_POST(self) -> None:
            self._respond("POST", dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode())))

        def _respond(self, method: str, fields: dict[str, str]) -> None:
            status, body = double.respond(method, urlsplit(self.path).path, fields)
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its base names it so
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
