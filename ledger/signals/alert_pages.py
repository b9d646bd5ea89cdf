"""The alerts that have not ended, each with the accounts that have crossed it; operators declare, change and end them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from ledger.models import CreditType
from ledger.signals.alert_declarations import AlertRequest, EndAlertRequest, WrittenAlert, end_alert, set_alert
from ledger.signals.alert_watching import crossed
from ledger.signals.errors import AlertLimit, AlertNotFound
from ledger.signals.models import Alert
from ledger.signals.permissions import SET_ALERT
from ledger.staff.approvals import NoStake
from ledger.staff.credit_amounts import DEFAULT_TYPE, CreditAmountField, CreditAmountsForm
from ledger.staff.kit import columns
from ledger.staff.kit.cells import row_url, timestamp
from ledger.staff.kit.columns import Column, table_of
from ledger.staff.kit.filters import text
from ledger.staff.kit.form_fields import Display
from ledger.staff.kit.idempotent_forms import Done, FieldFaults, FormPage, RequestForm
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList, operation
from ledger.staff.links import account_link
from ledger.units import with_units
from ledger.values import FieldError

LIMITS = {
    "below": "below {amount}",
    "below_percent": "below {below_percent} % of the most since the last grant",
    "days_left": "less than {days_left} days left at the rate of {rate_days} days",
    "expiring_days": "credits expire within {expiring_days} days",
}
ACCOUNTS_SHOWN = 50


def limit_text(row: Any) -> str:
    """Return when the alert reports an account, in words; the row has its unit."""
    amount = "" if row.below is None else row.unit.amount(row.below)
    return next(words.format(**vars(row), amount=amount) for name, words in LIMITS.items() if getattr(row, name) is not None)


NO_CREDITS: Final = NoStake("It moves no credits: it says when an account is reported.")


class AlertForm(CreditAmountsForm[AlertRequest]):
    """When an account is reported."""

    declared = AlertRequest
    stake = NO_CREDITS
    use_case: ClassVar[Callable[..., WrittenAlert]] = staticmethod(set_alert)
    shows = {
        "alert": Display(
            label="Name",
            help="Replaces the alert of that name with the same holder and credit type. Small letters, digits and . _ -",
        ),
        "holder_id": Display(label="Holder", help="The only holder that it watches; empty for all."),
        "credit_type": Display(help="The only credit type that it watches; empty for all."),
        "below": Display(help="Low with fewer available credits than this. Fill in one of the four."),
        "below_percent": Display(label="Below percent", help="Of the most that were available since the last grant."),
        "days_left": Display(label="Days left", help="Low if what is available lasts for fewer days at the present rate."),
        "rate_days": Display(label="Rate of days", help="With days left: over how many days the rate is measured; empty: 7."),
        "expiring_days": Display(
            label="Expiring within days", help="Reports each lot that expires within this number of days, once."
        ),
    }

    def clean(self) -> dict[str, Any]:
        """Refuse an amount of all credit types if they differ in their decimals: of each it would be another amount."""
        cleaned = super().clean()
        if cleaned.get("below") is not None and not cleaned.get("credit_type"):
            below = self.fields["below"]
            assert isinstance(below, CreditAmountField)
            if CreditType.objects.exclude(scale=below.unit.scale).exists():
                self.add_error("credit_type", "Choose one: credit types differ in their decimals, so an amount needs its type.")
        return cleaned


class EndAlertForm(RequestForm[EndAlertRequest]):
    """Why the alert ends."""

    declared = EndAlertRequest
    stake = NO_CREDITS
    use_case: ClassVar[Callable[..., WrittenAlert]] = staticmethod(end_alert)
    shows: ClassVar[Mapping[str, Display]] = {}


class AlertPage(FormPage[Any]):
    """The page of a form that declares or ends an alert."""

    def operation(self, form: Any) -> Done:
        """Do it; the alert's page shows it, or the list after its end."""
        try:
            written = form.use_case(form.request)
        except (AlertLimit, AlertNotFound) as error:
            raise FieldFaults([FieldError("/alert", error.code, error.answer.detail.format(**error.facts))]) from error
        row = written.alert
        with_units([row], of_all_types=DEFAULT_TYPE)
        where = reverse("admin:ledger_signals_alert_changelist") if row.is_ended else row_url(Alert, row.pk)
        return Done(f"Alert {row.name}", "ended" if row.is_ended else limit_text(row), where, written.replayed)


@admin.register(Alert)
class AlertAdmin(ReadOnlyAdmin):
    """The alerts, those that were declared last first."""

    limit = Column("Reports", limit_text)
    holder = Column("Holder", lambda row: row.holder_id or "all holders")
    counted_in = Column("Credit type", lambda row: row.credit_type or "all types")
    declared = columns.instant("Declared", "recorded_at")
    by = Column("By", "actor")

    list_display = ("name", "limit", "holder", "counted_in", "declared", "by")
    list_filter = (text("name"), text("holder_id", title="holder"))
    fields = (("name", "limit"), ("holder", "counted_in"), ("declared", "by"), ("reason",))
    actions_list = ("declare",)
    actions_detail = ("change", "end")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Alert]:
        """Return the last row of each name and scope, unless it ends the alert."""
        scope = ("holder_id", "name", "credit_type")
        latest = Alert.objects.order_by(*scope, "-pk").distinct(*scope).values("pk")
        return super().get_queryset(request).filter(pk__in=latest, is_ended=False)

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return them with the filters' values."""
        cl.queryset = cl.queryset.filter(**cl.values())
        return super().read_page(request, cl, cursor)

    def prepare(self, rows: Sequence[Any]) -> None:
        """Give each alert the unit of its amount; that of the default type if it watches all types."""
        with_units(rows, of_all_types=DEFAULT_TYPE)

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return the accounts that have crossed it and not recovered."""
        found = crossed(row.name, holder=row.holder_id, credit_type=row.credit_type, limit=ACCOUNTS_SHOWN)
        words = f"Accounts that have crossed an alert of this name, up to {ACCOUNTS_SHOWN}"
        return {"title": f"Alert {row.name}", "parts": [(words, _crossed_table(found))]}

    @operation("Declare an alert", icon="add_alert", permission=SET_ALERT, url_path="declare-alert")
    def declare(self, request: HttpRequest) -> HttpResponse:
        """Say when accounts are reported."""
        return self._declare(request, "Declare an alert", reverse("admin:ledger_signals_alert_changelist"), {})

    @operation("Change", icon="edit_notifications", permission=SET_ALERT, url_path="change-alert")
    def change(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Replace this alert by another of its name and scope."""
        row = self.row_of(request, object_id)
        known = {name: getattr(row, name) for name in AlertForm.shows if hasattr(row, name) and name != "reason"}
        return self._declare(request, f"Change alert {row.name}", row_url(Alert, row.pk), {"alert": row.name, **known})

    def _declare(self, request: HttpRequest, title: str, back: str, initial: dict[str, Any]) -> HttpResponse:
        return AlertPage(
            form=AlertForm,
            title=title,
            button="Declare",
            explanation="Webhooks get a signal once when an account becomes low, and again only after it has recovered.",
            back=back,
            initial=initial,
        ).view(self, request)

    @operation("End", icon="notifications_off", permission=SET_ALERT, url_path="end-alert")
    def end(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """End this alert."""
        row = self.row_of(request, object_id)
        return AlertPage(
            form=EndAlertForm,
            title=f"End alert {row.name}",
            button="End the alert",
            explanation="What accounts crossed is forgotten, without a signal.",
            back=row_url(Alert, row.pk),
            fixed={"alert": row.name, "holder_id": row.holder_id, "credit_type": row.credit_type},
        ).view(self, request)


def _crossed_table(found: list[Any]) -> dict[str, Any]:
    return table_of(
        found,
        ("Account", lambda row: account_link(row.holder_id, row.credit_type, f"{row.holder_id}, {row.credit_type}")),
        ("Crossed", lambda row: timestamp(row.crossed_at)),
        ("Crossing", lambda row: row.crossings),
        ("Nothing left", lambda row: "yes" if row.is_depleted else "no"),
    )
