"""The features of the comparison: each once, with what this project does, the page or test that shows it, and what others say.

`python docs/site/features.py` writes the tables of docs/explanation/comparison.md from them; a test compares the page with them,
and looks for each page, heading and test that is named.
"""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = "docs/explanation/comparison.md"
UNKNOWN: Final = "–"
"""The pages that were read do not say it."""
NO: Final = "no"

BILLING_PLATFORMS: Final = ("Lago", "OpenMeter", "Orb", "Metronome", "Autumn", "Polar", "Kill Bill", "Stripe billing credits")
LEDGERS: Final = ("Formance Ledger", "Blnk", "TigerBeetle")


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A row of the comparison.

    Args:
        name: what a reader looks for.
        here: what this project does: `NO`, or words that begin with "yes" where something shows it.
        shown_by: the page, with its heading, or the test that shows it, from the root of the project; empty if `here` is `NO`.
        others: by product, what its own documentation says; a product that is left out is unknown.
    """

    name: str
    here: str
    shown_by: str = ""
    others: Mapping[str, str] = field(default_factory=dict)


CREDITS: Final = (
    Feature(
        name="a spend is decided before the work, synchronously",
        here="yes, refused if credits lack",
        shown_by="docs/tutorial.md#ask-for-too-much",
        others={
            "Lago": "no: credits are applied when the invoice is generated; the running balance is refreshed periodically",
            "OpenMeter": "no: events are processed asynchronously, your application acts on the balance",
            "Orb": "no: credits are deducted as events are ingested",
            "Metronome": "no: the balance follows usage",
            "Autumn": "yes: `check`, which can deduct or reserve",
            "Polar": "no: your application checks a balance that follows events",
            "Kill Bill": "no: usage is recorded and billed",
            "Stripe billing credits": "no: applied after the invoice is finalised",
            "Formance Ledger": "yes: each transaction",
            "Blnk": "yes, queued by default; `skip_queue` decides at once",
            "TigerBeetle": "yes: each transfer",
        },
    ),
    Feature(
        name="priority and expiry of credits",
        here="yes, per grant",
        shown_by="docs/explanation/ledger.md#in-which-order-are-credits-used",
        others={
            "Lago": "per wallet, up to five active ones",
            "OpenMeter": "per grant",
            "Orb": "expiry per credit block",
            "Metronome": "per credit or commit",
            "Autumn": "by reset interval; balances can expire",
            "Polar": "rollover per benefit",
            "Stripe billing credits": "per grant",
        },
    ),
    Feature(
        name="holds: set aside, capture, release",
        here="yes",
        shown_by="docs/reference/api.md#holds",
        others={"Autumn": "balance locks", "Blnk": "inflight transactions", "TigerBeetle": "two-phase transfers"},
    ),
    Feature(
        name="leases: gateways decide by themselves, exactly",
        here="yes, also when they are killed",
        shown_by="tests/clients/test_lease_gateways.py",
    ),
    Feature(
        name="refunds go back to the lots that the credits came from",
        here="yes",
        shown_by="docs/explanation/ledger.md#where-do-refunded-credits-go",
    ),
    Feature(
        name="transfers between holders, overdrafts",
        here="yes",
        shown_by="docs/reference/api.md#transfers-and-overdrafts",
        others={"Formance Ledger": "yes", "Blnk": "yes", "TigerBeetle": "transfers"},
    ),
    Feature(
        name="recurring grants with rollover",
        here="yes",
        shown_by="docs/how-to/recurring-grants.md",
        others={"Lago": "recurring top-ups", "OpenMeter": "yes", "Autumn": "yes", "Polar": "credits of a plan, with rollover"},
    ),
    Feature(
        name="budgets: limits per window",
        here="yes",
        shown_by="docs/explanation/ledger.md#how-do-budgets-limit-spending",
    ),
    Feature(
        name="alerts on balances",
        here="yes, from the entries",
        shown_by="docs/how-to/signals.md",
        others={"Lago": "yes", "Orb": "yes", "Metronome": "yes", "Blnk": "balance monitors"},
    ),
    Feature(
        name="automatic top-ups with payment",
        here="yes, with Stripe",
        shown_by="docs/how-to/auto-top-up.md",
        others={"Lago": "yes (premium)", "Orb": "yes", "Autumn": "top-ups"},
    ),
    Feature(
        name="cost basis of credits, deferred revenue",
        here="yes",
        shown_by="docs/explanation/books.md",
        others={"Metronome": "cost basis of grants"},
    ),
    Feature(
        name="history that cannot be changed, with proof",
        here="yes: chains of hashes, audited by a command",
        shown_by="docs/explanation/ledger.md#how-do-i-notice-that-history-was-rewritten",
        others={
            "Orb": "append-only ledger",
            "Formance Ledger": "hashes over the log",
            "Blnk": "hash chain, verified by its CLI",
            "TigerBeetle": "checksums that the cluster verifies",
        },
    ),
    Feature(
        name="double entry over any number of accounts",
        here=NO,
        others={"Formance Ledger": "yes", "Blnk": "yes", "TigerBeetle": "yes"},
    ),
)

BILLING: Final = (
    Feature(
        name="plans, price models, invoices, credit notes",
        here="yes",
        shown_by="docs/explanation/billing.md#how-is-a-price-computed",
        others={
            "Lago": "yes",
            "OpenMeter": "yes",
            "Orb": "yes",
            "Metronome": "yes",
            "Autumn": "plans; Stripe makes the invoices",
            "Polar": "yes",
            "Kill Bill": "yes",
            "Stripe billing credits": "yes",
        },
    ),
    Feature(
        name="metering of usage events",
        here="yes, in PostgreSQL, with expressions and corrections",
        shown_by="docs/how-to/compute-usage.md",
        others={
            "Lago": "yes, at high volume",
            "OpenMeter": "yes, at high volume",
            "Orb": "yes, at high volume",
            "Metronome": "yes, at high volume",
            "Autumn": "yes",
            "Polar": "yes",
            "Kill Bill": "usage records; metering is outside",
            "Stripe billing credits": "yes",
        },
    ),
    Feature(
        name="prepaid credits cover usage, the rest is invoiced",
        here="yes",
        shown_by="docs/how-to/monthly-allowance.md",
        others={
            "Lago": "yes",
            "OpenMeter": "yes",
            "Orb": "yes",
            "Metronome": "yes",
            "Autumn": "yes",
            "Polar": "yes",
            "Kill Bill": "credit in money on invoices",
            "Stripe billing credits": "yes",
        },
    ),
    Feature(
        name="payments",
        here="yes: Stripe, bank transfers, files of banks; other providers by a class of your own",
        shown_by="docs/how-to/take-payments.md",
        others={
            "Lago": "several providers",
            "OpenMeter": "with your provider",
            "Orb": "with your provider",
            "Metronome": "with your provider",
            "Autumn": "Stripe",
            "Polar": "yes, as merchant of record",
            "Kill Bill": "many, by plug-ins",
            "Stripe billing credits": "yes",
            "Formance Ledger": "connectors",
        },
    ),
    Feature(
        name="reminders of overdue invoices (dunning)",
        here="yes: steps with mails, fees and suspension",
        shown_by="docs/how-to/dunning.md",
        others={"Lago": "yes", "Orb": "retries of payments", "Kill Bill": "overdue states", "Stripe billing credits": "yes"},
    ),
    Feature(
        name="taxes by region, a tax service, VAT ids in VIES",
        here="yes, with Stripe Tax or a class of your own",
        shown_by="docs/how-to/bring-a-tax-provider.md",
        others={"Polar": "yes, as merchant of record", "Kill Bill": "plug-ins", "Stripe billing credits": "Stripe Tax"},
    ),
    Feature(
        name="e-invoices by EN 16931: Factur-X in the PDF, XRechnung, Peppol BIS 3",
        here="yes",
        shown_by="tests/billing/documents/test_e_invoices.py",
    ),
    Feature(
        name="several sellers, each with series of numbers",
        here="yes, of one company",
        shown_by="tests/billing/documents/test_sellers.py",
        others={"Lago": "yes"},
    ),
    Feature(
        name="several companies in one installation",
        here=NO,
        others={"Kill Bill": "tenants"},
    ),
    Feature(
        name="merchant of record: sells and pays tax in its own name",
        here=NO,
        others={"Polar": "yes"},
    ),
    Feature(
        name="entitlements: features switched on and off by plan",
        here=NO,
        others={"Lago": "yes", "OpenMeter": "yes", "Autumn": "yes", "Polar": "benefits", "Kill Bill": "yes"},
    ),
)

OPERATION: Final = (
    Feature(
        name="licence",
        here="MIT",
        shown_by="LICENSE",
        others={
            "Lago": "AGPLv3; parts are premium",
            "OpenMeter": "Apache 2.0",
            "Orb": "service",
            "Metronome": "service",
            "Autumn": "Apache 2.0",
            "Polar": "Apache 2.0",
            "Kill Bill": "Apache 2.0",
            "Stripe billing credits": "service",
            "Formance Ledger": "MIT; some modules Enterprise",
            "Blnk": "Apache 2.0",
            "TigerBeetle": "Apache 2.0",
        },
    ),
    Feature(
        name="somebody runs it for you",
        here=NO,
        others={
            "Lago": "yes",
            "OpenMeter": "yes",
            "Orb": "yes",
            "Metronome": "yes",
            "Autumn": "yes",
            "Polar": "yes",
            "Stripe billing credits": "yes",
            "Formance Ledger": "yes",
            "Blnk": "yes",
        },
    ),
    Feature(
        name="servers that it needs",
        here="yes: PostgreSQL, and nothing else",
        shown_by="docs/how-to/operations/index.md",
        others={
            "Lago": "PostgreSQL, Redis",
            "OpenMeter": "PostgreSQL, Kafka, ClickHouse",
            "Orb": "none",
            "Metronome": "none",
            "Autumn": "several",
            "Kill Bill": "Java, MySQL or PostgreSQL",
            "Stripe billing credits": "none",
            "Formance Ledger": "PostgreSQL",
            "Blnk": "PostgreSQL, Redis",
            "TigerBeetle": "a cluster, typically of 6 replicas",
        },
    ),
    Feature(
        name="inside your own Django project and transaction",
        here="yes",
        shown_by="docs/how-to/embedding.md",
    ),
    Feature(
        name="operators' pages",
        here="yes: Django admin, with a second operator for large amounts",
        shown_by="docs/how-to/admin.md",
        others={
            "Lago": "yes",
            "OpenMeter": "none bundled",
            "Orb": "yes",
            "Metronome": "yes",
            "Autumn": "yes",
            "Polar": "yes",
            "Kill Bill": "Kaui",
            "Stripe billing credits": "Stripe Dashboard",
            "Formance Ledger": "console",
        },
    ),
    Feature(
        name="a page for the customer",
        here="yes, by a signed link",
        shown_by="docs/how-to/customer-page.md",
        others={"Lago": "yes", "Orb": "invoice portal", "Polar": "customer portal", "Stripe billing credits": "customer portal"},
    ),
    Feature(
        name="official clients",
        here="yes: Python, TypeScript; a LiteLLM callback",
        shown_by="docs/how-to/clients.md",
        others={
            "Lago": "several languages",
            "Orb": "TypeScript, among others",
            "Autumn": "TypeScript, Python",
            "Polar": "TypeScript, Python, PHP, Go",
            "Stripe billing credits": "several languages",
        },
    ),
    Feature(
        name="measured beyond one machine",
        here="yes: Citus, by holder",
        shown_by="docs/how-to/operations/cluster.md",
        others={"TigerBeetle": "replicated by consensus, with a published Jepsen analysis"},
    ),
    Feature(name="a history in production", here=NO),
)

TABLES: Final = {
    "credits beside billing platforms": (CREDITS, BILLING_PLATFORMS),
    "credits beside ledgers": (CREDITS, LEDGERS),
    "billing": (BILLING, BILLING_PLATFORMS),
    "operation beside billing platforms": (OPERATION, BILLING_PLATFORMS),
    "operation beside ledgers": (OPERATION, LEDGERS),
}
FEATURES: Final = (*CREDITS, *BILLING, *OPERATION)


def table(features: Sequence[Feature], products: Sequence[str]) -> str:
    """Return a table of Markdown, a row for each feature."""
    rows = [["", "this project", *products], ["---"] * (len(products) + 2)]
    rows += [[each.name, _here(each), *(each.others.get(product, UNKNOWN) for product in products)] for each in features]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _here(feature: Feature) -> str:
    if feature.here == NO:
        return NO
    file, _, heading = feature.shown_by.partition("#")
    if not file.startswith("docs/"):
        return f"{feature.here} (`{file}`)"
    path = posixpath.relpath(file, posixpath.dirname(PAGE))
    return f"[{feature.here}]({path}{'#' + heading if heading else ''})"


def with_tables(page: str) -> str:
    """Return the page with its tables as they are declared here."""
    for name, (features, products) in TABLES.items():
        begin, end = f"<!-- table: {name} -->\n", "<!-- end of the table -->"
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n{table(features, products)}\n\n{end}{rest.partition(end)[2]}"
    return page


if __name__ == "__main__":
    (ROOT / PAGE).write_text(with_tables((ROOT / PAGE).read_text()))
