"""Rates: versions of prices in credits. A new price is a new version; no version ever changes."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from ledger import reads, services
from ledger.models import Rate, RateListing
from ledger.operators.permissions import PUBLISH_RATE
from ledger.rules.credit_units import CreditUnit
from ledger.rules.rates import WHOLE, RatePrice
from ledger.rules.requests import RateRequest
from ledger.staff.approvals import NoStake
from ledger.staff.credit_amounts import CreditAmountField, CreditAmountsForm
from ledger.staff.kit import columns
from ledger.staff.kit.cells import digits, instant_words, number, number_text
from ledger.staff.kit.columns import Column, table_of
from ledger.staff.kit.filters import WrongFilter, read_number, text
from ledger.staff.kit.form_fields import Display, whole_number
from ledger.staff.kit.idempotent_forms import Done, DryRun, FormPage
from ledger.staff.kit.pages import PAGE_ROWS, Page, ReadOnlyAdmin, UncountedList, operation
from ledger.staff.kit.rows import RowsField, text_cell
from ledger.staff.links import rate_link, rate_url
from ledger.staff.operations import REASON
from ledger.units import unit_of, with_units
from ledger.values import MAX_AMOUNT

VERSIONS_SHOWN = 100
MAX_DIGITS = 16
STATE_COLOURS = {"current": "success", "superseded": "default"}


class ComponentsField(RowsField):
    """Prices of components: a row has a name and its price, in the unit of the credit type, for a number of units."""

    def __init__(self) -> None:
        price = CreditAmountField(least=0, most=MAX_AMOUNT, label="Price", required=False)
        cells = {
            "name": text_cell("Component", placeholder="input"),
            "price": price,
            "per": text_cell("Per units", placeholder="1000", inputmode="numeric"),
        }
        super().__init__(cells, noun="Component")

    @property
    def price(self) -> CreditAmountField:
        """The field of the prices, which knows the unit."""
        found = self.columns["price"]
        assert isinstance(found, CreditAmountField)
        return found

    def value_of(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        components: dict[str, dict[str, int]] = {}
        for place, row in enumerate(rows):
            name, price, per = row.get("name", ""), row.get("price"), str(row.get("per", "")).strip()
            if not name:
                self.refuse(place, "name", "Name the component.")
            elif name in components:
                self.refuse(place, "name", f"{name[:40]} has two rows.")
            if price is None:
                self.refuse(place, "price", "Type the price.")
            elif price < 0:
                self.refuse(place, "price", "A price is 0 or more.")
            if not (per.isascii() and per.isdecimal() and len(per) <= MAX_DIGITS):
                self.refuse(place, "per", "Type a number of units, such as 1000.")
            elif price is not None:
                components[name] = {"price": price, "per": int(per)}
        return components

    def rows_of(self, value: Any) -> list[dict[str, Any]]:
        unit = self.price.unit
        return [{"name": name, "price": unit.typed(each["price"]), "per": each["per"]} for name, each in sorted(value.items())]

    def place_of(self, parts: Sequence[str], rows: Sequence[dict[str, Any]]) -> tuple[int, str] | None:
        named = [place for place, row in enumerate(rows) if parts and row.get("name") == parts[0]]
        column = parts[1] if len(parts) > 1 and parts[1] in self.columns else "name"
        return (named[0], column) if named else None


def components_field(value: Any, shown: Display) -> ComponentsField:
    """Return the field of the prices of components."""
    return ComponentsField()


class PublishForm(CreditAmountsForm[RateRequest]):
    """A new price in credits."""

    declared = RateRequest
    refers_to = {"code": "rate_code"}
    stake = NoStake("It moves no credits: it says what is charged from then on.")
    shows = {
        "code": Display(help="The priced unit, such as gpt-4o.output."),
        "credit_type": Display(),
        "price": Display(help="In the unit of the credit type, with its decimals. Leave it empty if the rate has components."),
        "per": Display(
            label="Per units",
            make=whole_number,
            help="For example, 3 credits per 1000 units. A cost is rounded up to the decimals of the credit type.",
        ),
        "components": Display(
            make=components_field,
            required=False,
            help="Instead of one price: a row for each component. The sum of all costs is rounded up once.",
        ),
        "reason": REASON,
    }

    def set_units(self) -> None:
        """Give the prices of components their unit too."""
        super().set_units()
        price = self.fields["price"]
        assert isinstance(price, CreditAmountField)
        self._components.price.set_unit(price.unit, price.widget.type_field)

    def clean(self) -> dict[str, Any]:
        """Refuse prices of components that were typed under another unit than the current one, too."""
        cleaned = super().clean()
        if cleaned.get("components"):
            self.ensure_shown_in("components", self._components.price.unit)
        return cleaned

    @property
    def _components(self) -> ComponentsField:
        components = self.fields["components"]
        assert isinstance(components, ComponentsField)
        return components


class RatePage(FormPage[PublishForm]):
    """The page that publishes a version, after it has said what that changes."""

    is_tried = True

    def dry_run(self, form: PublishForm) -> DryRun:
        """Say from when the version counts, what becomes dearer or cheaper, and for whom, by what was used lately."""
        rate = services.publish_rate.execute(replace(form.request, dry_run=True)).rate
        unit = unit_of(rate.credit_type)
        before = services.current_rate(rate.code, rate.credit_type)
        first = f"{rate.code} costs {price_text(rate, unit)}, from the moment at which you publish version {rate.version}."
        if before is None:
            return DryRun(sentences=[first, "It is a new rate."])
        stays = "Recorded entries keep the version that priced them, and captures of a hold that of the hold."
        trial = reads.try_rate(rate.code, rate.credit_type, rate.unit_prices)
        return DryRun(sentences=[first, stays, *_trial_sentences(trial, unit)], changes=_changed_prices(before, rate, unit))

    def operation(self, form: PublishForm) -> Done:
        """Publish it."""
        published = services.publish_rate.execute(form.request)
        rate = published.rate
        return Done(
            f"Version {rate.version} of {rate.code}",
            price_text(rate, unit_of(rate.credit_type)),
            rate_url(rate.credit_type, rate.code, rate.version),
            published.replayed,
        )


def _changed_prices(before: Rate, after: Rate, unit: CreditUnit) -> list[tuple[str, str, str]]:
    """Return each component, or the rate as a whole, with its price before and after."""
    old, new = before.unit_prices, after.unit_prices
    return [
        (
            after.code if name == WHOLE else name,
            _unit_price_words(old.get(name), unit),
            _unit_price_words(new.get(name), unit),
        )
        for name in dict.fromkeys((*old, *new))
    ]


def _unit_price_words(found: RatePrice | None, unit: CreditUnit) -> str:
    return "not there" if found is None else f"{unit.amount(found.price)} per {number_text(found.per)}"


def _trial_sentences(trial: reads.RateTrial, unit: CreditUnit) -> list[str]:
    if trial.since is None:
        return [f"The newest {reads.MOST_ENTRIES:,} entries have no use of it."]
    sentences = []
    if trial.lacking:
        names = ", ".join(sorted(trial.lacking))
        sentences.append(f"Uses of {names} will be refused: this version has no such component.")
    if trial.uses:
        which = f"{trial.uses:,} use{'' if trial.uses == 1 else 's'} by {len(trial.holders):,} holder"
        which += f"{'' if len(trial.holders) == 1 else 's'} since {instant_words(trial.since)}"
        more = "more" if trial.after >= trial.before else "less"
        sentences.append(
            f"{which} cost {unit.amount(trial.before)}; at this price they would have cost {unit.amount(trial.after)}, "
            f"{unit.amount(abs(trial.after - trial.before))} {more}. They are those among the newest {reads.MOST_ENTRIES:,} "
            "entries, before refunds."
        )
    return sentences


def split_rate_id(key: str) -> tuple[str, str, int] | None:
    """Return credit type, code and version of a rate's key; None if it is not one."""
    parts = key.split("/")
    if len(parts) != 3 or not (parts[2].isascii() and parts[2].isdecimal()) or len(parts[2]) > 9 or "\x00" in key:
        return None
    return parts[0], parts[1], int(parts[2])


def find(key: str) -> RateListing | None:
    """Return the version of that key, found by the primary key of its table."""
    parts = split_rate_id(key)
    if parts is None:
        return None
    return RateListing.objects.filter(credit_type=parts[0], code=parts[1], version=parts[2]).first()


def price_words(row: Any) -> SafeString:
    """Return the price in words, with a line for each component."""
    if row.components is not None:
        words = [(name, row.unit.amount(price), number(per)) for name, (price, per) in row.unit_prices.items()]
        return format_html_join(mark_safe("<br>"), "{} {} per {}", ((name, digits(price), per) for name, price, per in words))
    units = "unit" if row.per == 1 else format_html("{} units", number(row.per))
    return format_html("{} per {}", digits(row.unit.amount(row.price)), units)


def price_text(rate: Rate, unit: CreditUnit) -> str:
    """Return the price as text; the prices of all components."""
    prices = [(name, f"{unit.amount(price)} per {number_text(per)}") for name, (price, per) in rate.unit_prices.items()]
    return ", ".join(price if rate.components is None else f"{name} {price}" for name, price in prices)


@admin.register(RateListing)
class RateAdmin(ReadOnlyAdmin):
    """One row per version, by credit type and code, the newest version first."""

    code_cell = Column("Rate", "code")
    version_cell = Column("Version", lambda row: f"v{row.version}")
    price_cell = Column("Price", price_words)
    state = columns.badge("State", lambda row: "current" if row.is_current else "superseded", STATE_COLOURS)
    published = columns.instant("Published", "published_at")
    why = columns.short("Reason", "published_because")
    key = columns.code("Idempotency key", "idempotency_key")

    list_display = ("code_cell", "version_cell", "price_cell", "credit_type", "state", "published", "published_by", "why")
    list_display_links = ("code_cell",)
    list_filter = (text("credit_type", title="credit type"),)
    nearest = "Beginning"
    further = "Further"
    search_fields = ("code",)
    search_help_text = "Beginning of a code"
    fieldsets = (
        (None, {"fields": (("code", "version_cell", "state"), ("price_cell", "credit_type"))}),
        ("Author and reason", {"fields": (("published", "published_by"), "published_because", "key")}),
    )
    actions_list = ("publish",)
    actions_detail = ("publish_next",)

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return the page by the primary key of the table, with the versions in descending order."""
        rows = cl.queryset.order_by("credit_type", "code", "-version")
        if "credit_type" in cl.values():
            rows = rows.filter(credit_type=cl.values()["credit_type"])
        prefix = cl.query.strip().removesuffix("*")
        if prefix:
            rows = rows.filter(code__startswith=prefix)
        after = ("", "", 0)
        if cursor:
            credit_type, code, version = _read_cursor(cursor)
            after = (credit_type, code, version)
            same_rate = Q(credit_type=credit_type, code=code, version__lt=version)
            rows = rows.filter(Q(credit_type__gt=credit_type) | Q(credit_type=credit_type, code__gt=code) | same_rate)
        page_rows: list[Any] = list(rows[: PAGE_ROWS + 1])
        shown = page_rows[:PAGE_ROWS]
        names = [after[:2], *((row.credit_type, row.code) for row in shown)]
        for row, (before, own) in zip(shown, pairwise(names), strict=True):
            # The newest version comes first.
            row.is_current = before != own
        return Page(rows=shown, older=shown[-1].pk if len(page_rows) > PAGE_ROWS else None)

    def searched(self, word: str) -> Q:
        """Return all: `read_page` searches."""
        return Q()

    def find(self, request: HttpRequest, key: str) -> RateListing | None:
        """Find by the primary key of the table: the view's own key has no index."""
        row = find(key)
        if row is not None:
            current = services.current_rate(row.code, row.credit_type)
            row.is_current = current is not None and current.version == row.version  # type: ignore[attr-defined]
        return row

    def prepare(self, rows: Sequence[Any]) -> None:
        """Give each version its unit."""
        with_units(rows)

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return the version with the others of its rate."""
        return {"title": f"{row.code} v{row.version}", "parts": [("Versions", _versions_table(row))]}

    # What can be done ---------------------------------------------------------------------------------

    @operation("Publish a rate", icon="add", permission=PUBLISH_RATE, url_path="publish-rate")
    def publish(self, request: HttpRequest) -> HttpResponse:
        """Publish a first or a new price."""
        return self._publish(request, initial={"credit_type": "credits"}, back=reverse("admin:ledger_ratelisting_changelist"))

    @operation("New price", icon="add", permission=PUBLISH_RATE, url_path="new-price")
    def publish_next(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Publish the next version of this rate."""
        row = self.row_of(request, object_id)
        initial = {
            "code": row.code,
            "credit_type": row.credit_type,
            "price": row.price,
            "per": row.per,
            "components": row.components,
        }
        return self._publish(request, initial=initial, back=rate_url(row.credit_type, row.code, row.version))

    def _publish(self, request: HttpRequest, *, initial: dict[str, Any], back: str) -> HttpResponse:
        return RatePage(
            form=PublishForm,
            initial=initial,
            title=f"New price of {initial['code']}" if "code" in initial else "Publish a rate",
            button="Publish",
            explanation="The new version is effective immediately. Earlier entries keep the version that priced them.",
            back=back,
        ).view(self, request)


def _versions_table(row: RateListing) -> dict[str, Any]:
    versions = list(Rate.objects.filter(credit_type=row.credit_type, code=row.code).order_by("-version")[:VERSIONS_SHOWN])
    with_units(versions)
    return table_of(
        versions,
        ("Version", lambda each: rate_link(each.credit_type, each.code, each.version, f"v{each.version}")),
        RateAdmin.price_cell,
        RateAdmin.published,
        ("Published by", "published_by"),
        ("Reason", "published_because"),
    )


def _read_cursor(text: str) -> tuple[str, str, int]:
    parts = text.split("/")
    if len(parts) != 3 or "\x00" in text:
        raise WrongFilter("The page link is not valid for this list.")
    return parts[0], parts[1], min(read_number(parts[2]), 2**31 - 1)
