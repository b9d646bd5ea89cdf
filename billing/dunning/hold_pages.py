"""The forms that put reminders on hold and release them, and the table of holds."""

from dataclasses import dataclass
from typing import Any

from django.db.models import Q
from django.http import HttpRequest, HttpResponse

from billing.admin.cells import by_pk, document_link
from billing.dunning.holds import NewHoldRelease, NewReminderHold, hold_reminders, release_hold
from billing.dunning.models import ReminderHold
from billing.models import Customer, Invoice
from billing.request_keys import WriteResult, execute_once, request_digest_of
from ledger.services import preview
from ledger.staff.approvals import NoStake
from ledger.staff.kit import columns
from ledger.staff.kit.cells import row_url
from ledger.staff.kit.columns import table_of
from ledger.staff.kit.form_fields import Display
from ledger.staff.kit.idempotent_forms import Done, DryRun, FormPage, KeyedForm, RequestForm
from ledger.staff.kit.pages import ReadOnlyAdmin

EFFECT = "No reminder, no fee and no suspension while it lasts. Afterwards the next reminder comes at once if its day is over."


class ReminderHoldForm(RequestForm[NewReminderHold]):
    """Reminders to put on hold; the reason of the form is that of the hold."""

    stake = NoStake("It moves no money: the invoice stays due.")
    declared = NewReminderHold
    shows = {"until": Display(label="First day with reminders", help="Empty: until somebody releases the hold.")}


@dataclass(frozen=True, kw_only=True)
class HoldPage(FormPage[ReminderHoldForm]):
    """The page that puts reminders on hold: first the effect, then done."""

    is_tried = True

    def dry_run(self, form: ReminderHoldForm) -> DryRun:
        """Describe the hold."""
        with preview():
            return DryRun(sentences=[hold_words(hold_reminders.execute(form.request)), EFFECT])

    def operation(self, form: ReminderHoldForm) -> Done:
        """Put them on hold, once."""
        content = {name: str(value) for name, value in vars(form.request).items()}
        result = execute_once(
            collection="reminder-holds",
            idempotency_key=form.key,
            request_digest=request_digest_of(content),
            act=lambda: WriteResult(201, {"id": hold_reminders.execute(form.request).pk}),
        )
        return Done("The hold", f"hold {result.body['id']}", self.back, result.replayed)


class ReminderReleaseForm(KeyedForm):
    """Why holds are released."""

    stake = NoStake("It moves no money: reminders go on.")


@dataclass(frozen=True, kw_only=True)
class ReleasePage(FormPage[ReminderReleaseForm]):
    """The page that releases all holds of an invoice, or of a customer as a whole: first the effect, then done."""

    about: Invoice | Customer

    is_tried = True

    def dry_run(self, form: ReminderReleaseForm) -> DryRun:
        """Name the holds."""
        return DryRun(sentences=[f"Released: {hold_words(hold)}" for hold in open_holds(self.about)])

    def operation(self, form: ReminderReleaseForm) -> Done:
        """Release them, once."""
        reason = form.cleaned_data["reason"]

        def act() -> WriteResult:
            releases = [NewHoldRelease(hold=one.pk, reason=reason, actor=form.actor) for one in open_holds(self.about)]
            return WriteResult(200, {"ids": [release_hold.execute(one).pk for one in releases]})

        result = execute_once(
            collection="reminder-hold-releases",
            idempotency_key=form.key,
            request_digest=request_digest_of({"about": self.back, "reason": reason}),
            act=act,
        )
        return Done("The release", f"of reminders of {self.about}", self.back, result.replayed)


def hold_view(model_admin: ReadOnlyAdmin, request: HttpRequest, about: Invoice | Customer) -> HttpResponse:
    """Show the form of a hold of an invoice, or of all invoices of a customer; then its effect, then write it."""
    is_invoice = isinstance(about, Invoice)
    name = str(about) if isinstance(about, Invoice) else f"all invoices of {about.ref}"
    return HoldPage(
        form=ReminderHoldForm,
        fixed={"invoice": about.pk} if isinstance(about, Invoice) else {"customer": about.ref},
        title=f"Put reminders of {name} on hold",
        button="Put on hold",
        explanation=EFFECT if is_invoice else f"{EFFECT} It applies to future invoices, too.",
        back=row_url(type(about), about.pk),
    ).view(model_admin, request)


def release_view(model_admin: ReadOnlyAdmin, request: HttpRequest, about: Invoice | Customer) -> HttpResponse:
    """Show the form that releases all holds of an invoice or of a customer; then the effect, then do it."""
    return ReleasePage(
        form=ReminderReleaseForm,
        about=about,
        title=f"Release the holds of reminders of {about}",
        button="Release",
        explanation="The next run reminds again, if a reminder is due.",
        back=row_url(type(about), about.pk),
    ).view(model_admin, request)


def open_holds(about: Invoice | Customer) -> list[ReminderHold]:
    """Return the holds that nobody has released: of an invoice, or of the customer as a whole."""
    of_it = {"invoice_id": about.pk} if isinstance(about, Invoice) else {"customer_id": about.pk, "invoice_id": None}
    return list(ReminderHold.objects.filter(released_at=None, **of_it).order_by("pk"))


def hold_words(hold: ReminderHold) -> str:
    """Return since when and until when a hold lasts, and why, in a sentence."""
    of_what = "All reminders of the customer are" if hold.invoice_id is None else "Reminders are"
    until = "until the hold is released" if hold.until is None else f"until {hold.until.isoformat()}"
    return f"{of_what} on hold {until}: {hold.reason}."


def holds_table(about: Invoice | Customer) -> dict[str, Any]:
    """Return the newest holds of a customer, or of an invoice with those of its customer as a whole."""
    if isinstance(about, Invoice):
        of_it = Q(invoice_id=about.pk) | Q(invoice_id=None, customer_id=about.customer_id)
    else:
        of_it = Q(customer_id=about.pk)
    holds = list(ReminderHold.objects.filter(of_it).order_by("-pk")[:50])
    invoices = by_pk(Invoice, [row.invoice_id for row in holds])
    return table_of(
        holds,
        ("Of", lambda row: "all invoices" if row.invoice_id is None else document_link(invoices.get(row.invoice_id))),
        columns.instant("Since", "recorded_at"),
        ("By", "actor"),
        ("Why", "reason"),
        ("Until", lambda row: "" if row.until is None else row.until.isoformat()),
        columns.instant("Released", "released_at"),
        ("Released by", "released_by"),
        ("Reason of the release", "release_reason"),
    )
