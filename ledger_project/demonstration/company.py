"""Who the demo is about: Nimbus Computing, which sells AI tokens for credits, its customers, and what it has on sale."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from billing.orders.plans import NewAllowance, NewOverage

SELLER: Final = {
    "name": "Nimbus Computing GmbH", "line1": "Wolkenstraße 7", "postal_code": "10115", "city": "Berlin", "country": "DE",
    "vat_id": "DE136695976", "email": "billing@nimbus.example", "phone": "+49 30 5550 1234", "iban": "DE89370400440532013000",
    "bank": "Musterbank Berlin",
}  # fmt: skip
CURRENCY: Final = "EUR"
VAT: Final = "19"
PLAN: Final = "team"
METER: Final = "tokens"


@dataclass(frozen=True)
class Company:
    """A customer of Nimbus Computing: the slug is its holder and the end of its reference.

    Args:
        seats: on a plan with seats.
        a_day: about how many credits it uses a day.
        pays_after: days from issue to payment, by month from the oldest on; None: not paid.
    """

    slug: str
    name: str
    line1: str
    postal_code: str
    city: str
    plan: str
    seats: int
    a_day: int
    pays_after: tuple[int | None, ...]
    vat_id: str = ""
    country: str = "DE"
    language: str = "de"

    @property
    def ref(self) -> str:
        return f"CUST-{self.slug.upper()}"

    @property
    def details(self) -> dict[str, Any]:
        """The customer as the API takes it."""
        return {
            "ref": self.ref, "name": self.name, "currency": CURRENCY, "holder_id": self.slug, "language": self.language,
            "time_zone": "Europe/Berlin", "terms_days": 14, "email": f"invoices@{self.slug}.example", "vat_id": self.vat_id,
            "vat_status": "taxable" if self.country == "DE" else "reverse_charge",
            "address": {
                "line1": self.line1, "postal_code": self.postal_code, "city": self.city, "country": self.country,
            },
        }  # fmt: skip


COMPANIES: Final = (
    Company("northwind", "Northwind Logistik GmbH", "Am Sandtorkai 12", "20457", "Hamburg", "scale", 0, 2_600, (6, 4, 7, 5)),
    Company("brightwater", "Brightwater Bank AG", "Mainzer Landstraße 40", "60325", "Frankfurt am Main", "scale", 0, 3_100,
            (9, 11, 8, None)),
    Company("lumen", "Lumen Studios GmbH", "Aachener Straße 88", "50674", "Köln", PLAN, 8, 1_500, (5, 6, 6, 4)),
    Company("harbor", "Harbor Robotics GmbH", "Überseeallee 3", "28217", "Bremen", PLAN, 5, 900, (7, None, None, None)),
    Company("juniper", "Juniper Health GmbH", "Leopoldstraße 21", "80802", "München", PLAN, 12, 1_900, (3, 3, 4, 3)),
    Company("atlas", "Atlas Reisen GmbH", "Nikolaistraße 9", "04109", "Leipzig", PLAN, 3, 500, (12, 13, None, None)),
    Company("cobalt", "Cobalt Games GmbH", "Köpenicker Straße 154", "10997", "Berlin", "studio", 0, 700, (3,)),
    Company("willow", "Willow & Söhne KG", "Königstraße 27", "70173", "Stuttgart", "solo", 0, 150, (8, 9, 10, None)),
    Company("alpenblick", "Alpenblick Software GmbH", "Mariahilfer Straße 50", "1070", "Wien", PLAN, 4, 800, (6, 6, 6, 6),
            vat_id="ATU13585627", country="AT"),
    Company("orchid", "Orchid Labs GmbH", "Hegelallee 5", "14467", "Potsdam", "solo", 0, 120, (None, 5, 5, None), language="en"),
)  # fmt: skip
TEAM: Final = ("lena.k", "tom.b", "aylin.d", "marc.v")
"""Members of Lumen Studios, each with a budget."""
HOLDERS: Final = [company.slug for company in COMPANIES]


def subscription_of(number: int) -> str:
    """Return the reference of the subscription of a company, by its place."""
    return f"SUB-{1001 + number}"


def _fee(
    amount: str, key: str = "base", model: str = "flat", *, name: str = "base fee", german: str = "Grundgebühr"
) -> dict[str, Any]:
    return {
        "key": key, "name": name, "names": {"de": german}, "kind": "recurring", "timing": "advance", "model": model,
        "unit_amount": amount, "tax_rate": VAT,
    }  # fmt: skip


USAGE: Final[dict[str, Any]] = {
    "key": "tokens", "names": {"de": "Token"}, "kind": "usage", "timing": "arrears", "model": "unit", "unit_amount": "0.00002",
    "free_units": "1000000", "meter": METER, "aggregation": "sum", "tax_rate": VAT,
}  # fmt: skip
PLANS: Final[dict[str, dict[str, Any]]] = {
    "solo": {"name": "Solo", "prices": [_fee("19.00")]},
    PLAN: {"name": "Team", "prices": [_fee("99.00"), _fee("12.00", "seats", "unit", name="seats", german="Plätze"), USAGE]},
    "scale": {"name": "Scale", "prices": [_fee("499.00"), USAGE]},
    "studio": {
        "name": "Studio",
        "prices": [_fee("149.00")],
        "allowance": NewAllowance(amount=20_000),
        "overage": NewOverage(price={"model": "unit", "unit_amount": "0.004", "tax_rate": VAT}, limit_credits=10_000),
    },
}
PACKS: Final[tuple[dict[str, Any], ...]] = (
    {
        "code": "tokens-10k",
        "name": "10,000 tokens",
        "names": {"de": "10.000 Token"},
        "credits": 10_000,
        "bonus": 500,
        "price_minor": 1_900,
    },
    {
        "code": "tokens-50k",
        "name": "50,000 tokens",
        "names": {"de": "50.000 Token"},
        "credits": 50_000,
        "bonus": 5_000,
        "price_minor": 7_900,
    },
)
COUPONS: Final[tuple[dict[str, Any], ...]] = (
    {"code": "WELCOME-20", "kind": "percentage", "value": Decimal(20), "duration": "once"},
    {"code": "PARTNER-10", "kind": "percentage", "value": Decimal(10), "duration": "forever"},
)
RATES: Final = {
    "nimbus-large.prompt": 3, "nimbus-large.answer": 15, "nimbus-small.prompt": 1, "nimbus-small.answer": 4, "nimbus-embed": 1,
}  # fmt: skip
"""The rate card: credits for 1,000 tokens of each model."""

TAKEN_BY_GUIDES: Final = frozenset({
    # Holders.
    "jane", "kim", "lee", "customer-42", "customer-43", "team-7", "harbour",
    "lena", "mia", "nora", "omar", "team-red", "team-red:ada", "shop-12", "page-demo", "noor", "yara", "wanda", "fjord", "acme-9",
    *(f"user-{number}" for number in range(1, 201)),
    # Customers, subscriptions, plans, packs, meters, rates.
    "tea", "SUB-FJORD", "SUB-TEA", "SUB-9", "calls-1000", "by-token", "starter", "calls", "weighted-tokens", "small.prompt",
    "image.small", "small.answer", "gpt-4o", "gpt-4o.output", "maple", "SUB-MAPLE", "SPRING-15", "nimbus-vision", "CUST-7",
    "CUST-8", "CUST-9", "CUST-10", "SUB-1234", "basic", "answers", "answer-tokens", "SUB-HARBOUR", "crew", "roda", "SUB-RODA",
})  # fmt: skip
"""What the README, the tutorial and the guides make on a fresh instance. The demo makes nothing of these names, so that each page
gets the results that it shows."""
