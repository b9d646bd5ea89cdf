"""Operators' transitions of a document, each with a reason, each once: finalise, pay, void, mark as uncollectible, delete."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html

from billing.admin.cells import by_pk, credits_text, money
from billing.documents import transitions
from billing.documents.invoices import DraftNote, came_to_nothing, note_draft
from billing.models import INVOICE, CreditPayment, Customer, Invoice, Subscription, Transition
from billing.models.columns import first_of
from billing.rating.money import money_text
from billing.request_keys import WriteResult, execute_once, request_digest_of
from ledger.errors import Refused
from ledger.services import preview
from ledger.staff.approvals import NoStake, Stake, StakeRule
from ledger.staff.kit import columns
from ledger.staff.kit.cells import row_url
from ledger.staff.kit.columns import table_of
from ledger.staff.kit.form_fields import Display
from ledger.staff.kit.idempotent_forms import Done, DryRun, FormPage, KeyedForm, RequestForm
from ledger.staff.kit.pages import ReadOnlyAdmin

NOTES_SHOWN = 100
VOID: Final = Invoice.State.VOID
FREEING: Final = ("void", transitions.DELETE)
"""The transitions that give credits back."""


Result = TypeVar("Result")


class FinalizeForm(KeyedForm):
    """Why a draft is finalised."""

    stake = NoStake("It pays nobody: the customer owes it. A void or a credit note takes it back, and has a stake.")


class PayForm(KeyedForm):
    """Why an invoice counts as paid."""

    stake = StakeRule(lambda form, before: [Stake(before.currency, before.amount_remaining_minor)])


class InvoiceVoidForm(KeyedForm):
    """Why an invoice is void: its whole total is owed no more, and credits that paid for it go back."""

    stake = StakeRule(
        lambda form, before: [
            Stake(before.currency, before.total_minor),
            *(
                Stake(paid.credit_type, paid.credits)
                for paid in CreditPayment.objects.filter(invoice_id=before.pk, refund_sequence=None)
            ),
        ]
    )


class UncollectibleForm(KeyedForm):
    """Why nobody expects the payment any more."""

    stake = StakeRule(lambda form, before: [Stake(before.currency, before.amount_remaining_minor)])


class DeletionForm(KeyedForm):
    """Why a draft is deleted."""

    stake = NoStake("It pays nobody: nothing of a draft is owed yet, and its periods are billed again.")


@dataclass(frozen=True)
class TransitionWords:
    """A transition for operators: its form, the label of its button, its effect, and the states in which it is possible."""

    form: type[KeyedForm]
    title: str
    explanation: str
    origins: Collection[str]


WORDS: Final = {
    "finalize": TransitionWords(
        FinalizeForm,
        "Finalise",
        "The invoice uses the available credits, gets its number and becomes final.",
        {"draft"},
    ),
    "pay": TransitionWords(
        PayForm, "Mark as paid", "The customer has paid all that is due by other means than credits.", {"open", "uncollectible"}
    ),
    "void": TransitionWords(
        InvoiceVoidForm,
        "Void",
        "Voiding returns the credits that paid part of the invoice and frees its periods for billing. The invoice keeps its "
        "number. Later invoices of 0 that correct it become void too.",
        {"open", "uncollectible"},
    ),
    "mark_uncollectible": TransitionWords(
        UncollectibleForm,
        "Mark as uncollectible",
        "You no longer expect this payment. You can still mark the invoice as paid, or void it.",
        {"open"},
    ),
    "delete": TransitionWords(
        DeletionForm,
        "Delete draft",
        "Deleting returns the draft's credits and frees its periods for billing. Your name and reason stay on record.",
        {"draft"},
    ),
}


@dataclass(frozen=True, kw_only=True)
class TransitionPage(FormPage[KeyedForm]):
    """The page of a transition of an invoice.

    Args:
        name: the invoice's name while it has no number.
        then: the page after a deletion.
    """

    is_tried = True
    invoice_id: int
    kind: str
    name: str
    then: str

    def try_out(self, form: KeyedForm, look: Callable[[KeyedForm, Invoice], Result]) -> Result:
        """Make the transition in a preview, and let `look` see the invoice as it was before."""
        with invoices_named(), preview():
            before = first_of(Invoice.objects.filter(pk=self.invoice_id), INVOICE.word, self.invoice_id)
            seen = look(form, before)
            transitions.apply_in(invoice_id=self.invoice_id, kind=self.kind, actor=form.actor, reason=form.cleaned_data["reason"])
            return seen

    def dry_run(self, form: KeyedForm) -> DryRun:
        """Say what becomes of the invoice, of the credits that paid for it, and of the periods that it bills."""
        with invoices_named(), preview():
            before = first_of(Invoice.objects.filter(pk=self.invoice_id), INVOICE.word, self.invoice_id)
            name, back = str(before), list(CreditPayment.objects.filter(invoice_id=before.pk, refund_sequence=None))
            last = Transition.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
            reason = form.cleaned_data["reason"]
            if self.kind == transitions.DELETE:
                transitions.delete_draft_in(invoice_id=self.invoice_id, actor=form.actor, reason=reason)
            else:
                transitions.apply_in(invoice_id=self.invoice_id, kind=self.kind, actor=form.actor, reason=reason)
            after = Invoice.objects.filter(pk=self.invoice_id).first()
            made = Transition.objects.filter(pk__gt=last, kind=VOID).exclude(invoice_id=before.pk).values("invoice_id")
            also = [str(each) for each in Invoice.objects.filter(customer_id=before.customer_id, pk__in=made).order_by("pk")]
        sentences = [f"{name} of {before.customer_ref}. {WORDS[self.kind].explanation}"]
        if self.kind in FREEING:
            sentences += [f"{credits_text(one.credits, one.credit_type)} of {one.holder_id} go back." for one in back]
        sentences += [f"{each} becomes void too." for each in also]
        changes = [
            ("State", before.state, "deleted" if after is None else after.state),
            ("Due", _due(before), "nothing" if after is None else _due(after)),
        ]
        if after is not None and after.number != before.number:
            changes.append(("Number", "none", f"{after.number}, if no other invoice gets it before"))
        return DryRun(sentences=sentences, changes=changes)

    def operation(self, form: KeyedForm) -> Done:
        """Make the transition."""
        with invoices_named():
            result = transitions.apply(
                invoice_id=self.invoice_id,
                kind=self.kind,
                actor=form.actor,
                reason=form.cleaned_data["reason"],
                idempotency_key=form.key,
            )
        return Done(
            f"“{WORDS[self.kind].title}” of {result.number or self.name}",
            f"the invoice is {result.state}",
            self.then if self.kind == transitions.DELETE else row_url(Invoice, result.invoice_id),
            result.replayed,
        )


def transition_view(model_admin: ReadOnlyAdmin, request: HttpRequest, invoice: Invoice, kind: str) -> HttpResponse:
    """Show the form of a transition of this invoice, or make the transition."""
    words = WORDS[kind]
    return TransitionPage(
        form=words.form,
        invoice_id=invoice.pk,
        kind=kind,
        name=str(invoice),
        title=f"{words.title}: {invoice}",
        button=words.title,
        explanation=format_html(
            "{} for {}, {} due. {}",
            invoice.customer_ref,
            invoice.subscription_ref or "an invoice without a subscription",
            money(invoice.amount_remaining_minor, invoice.currency),
            words.explanation,
        ),
        back=row_url(Invoice, invoice.pk),
        then=_owner_url(invoice),
    ).view(model_admin, request)


class NoteForm(RequestForm[DraftNote]):
    """The note of a draft."""

    stake = NoStake("It moves no money: the document prints it.")
    declared = DraftNote
    shows = {
        "note": Display(label="Note", required=False, help="The document prints it: the number of an order, for example."),
    }

    def body(self) -> dict[str, Any]:
        """Return the JSON with the emptied note."""
        return {"note": ""} | super().body()


@dataclass(frozen=True, kw_only=True)
class NotePage(FormPage[NoteForm]):
    """The page of a draft's note."""

    draft: Invoice

    def operation(self, form: NoteForm) -> Done:
        """Give the draft the note, once."""
        note = form.request.note
        with invoices_named():
            result = execute_once(
                collection="invoices",
                idempotency_key=form.key,
                request_digest=request_digest_of({"invoice": self.draft.pk, "note": note}),
                act=lambda: WriteResult(200, {"id": note_draft(self.draft.pk, note).pk}),
            )
        return Done(f"The note of {self.draft}", note or "none", row_url(Invoice, self.draft.pk), result.replayed)


def note_view(model_admin: ReadOnlyAdmin, request: HttpRequest, draft: Invoice) -> HttpResponse:
    """Show the form of a draft's note, or give the draft the note."""
    return NotePage(
        form=NoteForm,
        draft=draft,
        title=f"Note: {draft}",
        button="Save the note",
        explanation="The document prints the note. A run that rates the draft again keeps it.",
        back=row_url(Invoice, draft.pk),
        initial={"note": draft.note},
    ).view(model_admin, request)


def deletion_view(model_admin: ReadOnlyAdmin, request: HttpRequest, invoice_id: int) -> HttpResponse | None:
    """Do as `transition_view`, but for a deleted draft, after a second click. Return None if there was no such draft."""
    kept = Transition.objects.filter(invoice_id=invoice_id, kind=transitions.DELETE).first()
    if kept is None:
        return None
    words = WORDS[transitions.DELETE]
    name = f"draft for {_draft_of(kept)['subscription_ref'] or _draft_of(kept)['customer_ref']}"
    return TransitionPage(
        form=words.form,
        invoice_id=invoice_id,
        kind=transitions.DELETE,
        name=name,
        title=f"{words.title}: {name}",
        button=words.title,
        explanation=f"{kept.actor} has deleted this draft.",
        back=_owner_url(kept),
        then=_owner_url(kept),
    ).view(model_admin, request)


def _due(invoice: Invoice) -> str:
    return money_text(invoice.amount_remaining_minor, invoice.currency) if invoice.amount_remaining_minor else "nothing"


def _owner_url(row: Invoice | Transition) -> str:
    """Return the page of the subscription, or of the customer of an invoice without one."""
    if row.subscription_id is not None:
        return row_url(Subscription, row.subscription_id)
    return row_url(Customer, row.customer_id)


ACTIONS: Final = {transitions.DELETE: "delete_draft"}
"""Return the name of a transition's action, if it differs from the name of its kind."""


def impossible(invoice: Invoice) -> list[str]:
    """Return the actions that the invoice's state does not allow."""
    return [ACTIONS.get(name, name) for name, words in WORDS.items() if not _is_possible(invoice, name, words)]


def _is_possible(invoice: Invoice, kind: str, words: TransitionWords) -> bool:
    if kind == "void" and invoice.amount_paid_minor:
        return False
    return invoice.state in words.origins or (kind == "void" and came_to_nothing(invoice))


def transitions_table(invoice: Invoice) -> dict[str, Any]:
    """Return the transitions of the document, made in the admin or over REST, with actors and reasons, the latest first."""
    rows = Transition.objects.filter(invoice_id=invoice.pk).order_by("-pk")[:NOTES_SHOWN]
    return table_of(
        rows,
        ("Transition", lambda row: WORDS[row.kind].title),
        ("Reason", "reason"),
        ("Actor", "actor"),
        columns.instant("Recorded", "recorded_at"),
    )


def deletions_table(subscription: Subscription) -> dict[str, Any]:
    """Return the deleted drafts that billed a subscription with the reasons, the latest first."""
    shared = Q(customer_id=subscription.customer_id, draft__subscriptions__contains=[subscription.ref])
    rows = Transition.objects.filter(Q(subscription_id=subscription.pk) | shared, kind=transitions.DELETE).order_by("-pk")
    rows = rows[:NOTES_SHOWN]
    return table_of(
        rows,
        columns.instant("Bills up to", lambda row: datetime.fromisoformat(_draft_of(row)["as_of"])),
        ("Total", lambda row: money(_draft_of(row)["total_minor"], _draft_of(row)["currency"])),
        ("Reason", "reason"),
        ("Actor", "actor"),
        columns.instant("Deleted", "recorded_at"),
    )


def _draft_of(deletion: Transition) -> dict[str, Any]:
    """Return the stored data of the deleted draft."""
    assert deletion.draft is not None
    return deletion.draft


@contextmanager
def invoices_named() -> Iterator[None]:
    """Let a refusal name invoices as the pages do. Over REST its facts are their ids."""
    try:
        yield
    except Refused as error:
        named = by_pk(Invoice, [error.facts.get(name) for name in ("invoice", "by")])
        error.facts |= {name: str(named[error.facts[name]]) for name in ("invoice", "by") if error.facts.get(name) in named}
        if error.facts.get("resource") == "invoice":
            del error.facts["ref"]
        raise
