"""Operators' operations on credits: forms of the requests of `ledger.services`. See Note [A double click is harmless]."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, TypeVar

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from unfold.widgets import UnfoldAdminSelectWidget

from ledger import reads, services
from ledger.errors import LedgerError
from ledger.models import EntryListing
from ledger.records import UseCase
from ledger.rules.budget_states import SETTINGS
from ledger.rules.entries import Entry
from ledger.rules.instants import from_us
from ledger.rules.kinds import KINDS
from ledger.rules.refusal_texts import are
from ledger.rules.requests import (
    BudgetRequest,
    ClockRequest,
    EndBudgetRequest,
    EndRecurringGrantRequest,
    FreezeRequest,
    GrantRequest,
    IncomingTransfersRequest,
    OverdraftRequest,
    RecurringGrantRequest,
    TransferRequest,
    VoidRequest,
)
from ledger.staff.approvals import NoStake, Stake, StakeRule
from ledger.staff.credit_amounts import CreditAmountsForm
from ledger.staff.credit_types import fact_writer
from ledger.staff.dry_runs import RequestT, dry_run_of
from ledger.staff.kit.form_fields import Display, made
from ledger.staff.kit.idempotent_forms import Done, DryRun, FormPage, RequestForm
from ledger.staff.kit.pages import ReadOnlyAdmin, describe
from ledger.staff.kit.rows import purpose_field
from ledger.staff.links import account_url, entry_url
from ledger.units import unit_of
from ledger.values import HOLDER_ID, Holder

Result = TypeVar("Result")

EXPIRY_PRESETS = [("", "never"), ("7", "in 7 days"), ("30", "in 30 days"), ("90", "in 90 days"), ("365", "in a year")]
"""Days and their names."""
REASON = Display(required=True, help="The ledger records it permanently with your name.")
WHY = {"reason": REASON, "reference": Display(help="Your id of the related case, such as a ticket.")}
AGAIN = made("holder_again", Holder(), Display(label="New holder, again"))


def end_of_day_in(days: int, *, now: datetime) -> datetime:
    """Return the end of the UTC day that is this many days away."""
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=days + 1)


class OperationForm(RequestForm[RequestT]):
    """A form of a request that makes an entry."""

    use_case: ClassVar[UseCase[..., Any, Entry]]
    is_abstract = True
    folded: tuple[str, ...] = ("reference",)
    reasons = ("goodwill", "requested by the customer", "correction of a mistake", "service was interrupted")


CREDITS_OF_ENTRY: Final = StakeRule(lambda form, entry: [Stake(entry.credit_type, abs(entry.amount))])
TAKES_BACK: Final = NoStake("It gives nobody anything: to give the credits again takes a grant, which has a stake.")
SETS_TERMS: Final = NoStake("It moves no credits: it limits what the holder may do with credits that it has.")


class RecipientForm(OperationForm[RequestT], CreditAmountsForm[RequestT]):
    """Gives credits to the holder with the typed id. A new holder's id is typed twice, because a mistyped id also looks new."""

    is_abstract = True
    recipient = "holder_id"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._again = self.fields.pop("holder_again")

    def clean(self) -> dict[str, Any]:
        """Ask for the id of a new holder once more."""
        cleaned = super().clean()
        holder_id = cleaned.get(self.recipient, "")
        if HOLDER_ID.fullmatch(holder_id) and not reads.is_known(holder_id):
            self.fields["holder_again"] = self._again
            self.order_fields([*self.shows])
            if self.data.get("holder_again", "").strip() != holder_id:
                why = f"{holder_id} is a new holder without credits. Type the id again to confirm it."
                self.add_error("holder_again", why)
        return cleaned


class GrantForm(RecipientForm[GrantRequest]):
    """The form of a grant: holder, amount, source, and its times."""

    declared, use_case = GrantRequest, services.grant
    stake = CREDITS_OF_ENTRY
    shows = {
        "holder_id": Display(label="Holder"),
        "holder_again": AGAIN,
        "credit_type": Display(),
        "amount": Display(help="In the unit of the credit type, with its decimals."),
        "source": Display(unset="Choose one", required=True, help="Purchased: the holder paid for the credits."),
        "expires_in": forms.ChoiceField(
            label="Expires",
            required=False,
            choices=EXPIRY_PRESETS,
            widget=UnfoldAdminSelectWidget(),
            help_text="At the end of that day (UTC). The further options have a field for another time.",
        ),
        **WHY,
        "expires_at": Display(label="Expires at (UTC)", help="The credits expire at this time; empty for never."),
        "effective_at": Display(label="Effective at (UTC)", help="The credits are usable from this time; empty for now."),
        "priority": Display(help="The ledger uses lots with a lower number first."),
        "applies_to": Display(
            label="Pays only for",
            make=purpose_field,
            help="Without a row: everything. Each further value of a label has a row. "
            "Spends and holds of other things pass these credits over.",
        ),
        "paid": Display(at="/paid_minor", label="Paid", help="What was paid, without tax."),
        "currency": Display(help="Of what was paid, such as EUR."),
        "sold_at": Display(label="Sold at (UTC)", help="Empty for now."),
        "document": Display(help="Of the sale in your books, such as an invoice's number."),
    }
    folded = ("reference", "expires_at", "effective_at", "priority", "applies_to", "paid", "currency", "sold_at", "document")

    def body(self) -> dict[str, Any]:
        """Return the JSON, without the currency if nothing was paid."""
        body = super().body()
        if "paid_minor" not in body and "paid" not in self.errors:
            body.pop("currency", None)
        return body

    def clean(self) -> dict[str, Any]:
        """Compute the chosen expiry: the end of a day, so that the same form makes the same request all day."""
        cleaned = super().clean()
        chosen = cleaned.get("expires_in")
        if chosen and cleaned.get("expires_at"):
            self.add_error("expires_in", "Choose an expiry here, or a time below, not both.")
        elif chosen:
            cleaned["expires_at"] = end_of_day_in(int(chosen), now=timezone.now())
            cleaned["expires_in"] = ""
        return cleaned


class OverdraftForm(OperationForm[OverdraftRequest], CreditAmountsForm[OverdraftRequest]):
    """The form of an overdraft: how far spends may take the balance below 0."""

    declared, use_case = OverdraftRequest, services.set_overdraft
    # The holder can spend all of it.
    stake = StakeRule(lambda form, entry: [Stake(entry.credit_type, entry.overdraft or 0)])
    shows = {"limit": Display(help="0 for no overdraft. An existing debt stays."), **WHY}


WINDOWS: Final = {"day": "each day", "week": "each week", "month": "each month", "rolling": "the last hours"}
SCOPES: Final = {
    "holder": "everything that the account spends",
    "actor": "each actor, such as an API key",
    "reference": "each reference",
    "label": "each value of a label, such as a member",
}
MODES: Final = {"hard": "is refused", "soft": "is spent, and shown"}


class BudgetForm(OperationForm[BudgetRequest], CreditAmountsForm[BudgetRequest]):
    """How much may be spent in a window of time, and by whom."""

    declared, use_case = BudgetRequest, services.set_budget
    stake = SETS_TERMS
    shows = {
        "budget": Display(label="Name", help="Replaces the budget of that name. Small letters, digits and . _ -"),
        "limit": Display(help="In the unit of the credit type; 0 for none."),
        "window": Display(words=WINDOWS, help="A day, week or month is one of the time zone."),
        "hours": Display(help="If the last hours count: how many, up to 744."),
        "time_zone": Display(help="Such as Europe/Berlin."),
        "by": Display(label="It counts", words=SCOPES, help="What is spent by each of them has the limit."),
        "label": Display(help="If it counts each value of a label: the key in the metadata, such as member."),
        "subject": Display(label="Only", help="One actor (key:NAME), reference or label value; empty: each has the whole limit."),
        "mode": Display(label="What is more", words=MODES),
        "parent": Display(label="Within", help="The budget in which it nests, such as that of each member; empty: none."),
        "starts_at": Display(label="Start", help="From when on it counts. Until then the present one stays. Empty: now."),
        "ends_at": Display(label="End", help="Until when. What begins then or later stays. Empty: it has no end."),
        **WHY,
    }


class EndBudgetForm(OperationForm[EndBudgetRequest]):
    """Which budget ends."""

    declared, use_case = EndBudgetRequest, services.end_budget
    stake = SETS_TERMS
    shows = {
        "budget": Display(label="Name"),
        "ends_at": Display(label="End", help="Nothing of its name begins later. Empty: now."),
        **WHY,
    }


class RecurringGrantForm(OperationForm[RecurringGrantRequest], CreditAmountsForm[RecurringGrantRequest]):
    """Credits that the account gets every day, week, month or year."""

    declared, use_case = RecurringGrantRequest, services.set_recurring_grant
    # The credits of one period.
    stake = StakeRule(lambda form, entry: [Stake(entry.credit_type, form.request.amount or form.request.up_to or 0)])
    shows = {
        "recurring_grant": Display(
            label="Name", help="Gives the recurring grant of that name other terms. Small letters, digits and . _ -"
        ),
        "amount": Display(help="Each period, in the unit of the credit type; or fill up to an amount instead."),
        "up_to": Display(label="Up to", help="Instead of the amount: fills what its earlier lots have left up to this."),
        "interval": Display(label="Every", help="The unit of a period."),
        "interval_count": Display(label="How many units", help="2 with month: every two months."),
        "starts_at": Display(label="Start", help="When the first period begins. Empty: now, or the present start."),
        "time_zone": Display(help="Such as Europe/Berlin."),
        "source": Display(help="Purchased: the holder paid for the credits."),
        "priority": Display(help="Lots with a lower number are spent first."),
        "applies_to": Display(
            label="Pays only for",
            make=purpose_field,
            help="Without a row: everything. Each further value of a label has a row.",
        ),
        "expiry": Display(
            label="They expire",
            words={
                "period_end": "at the end of their period",
                "after_days": "after some days",
                "never": "never",
                "rollover": "never, but the next period keeps unspent ones only up to a cap",
            },
        ),
        "expires_after_days": Display(label="Days", help="If they expire after some days: from the start of the period."),
        "rollover_cap": Display(label="Kept at most", help="If there is a cap: how many unspent credits the next period keeps."),
        "ends_at": Display(label="End", help="No period begins from then on. Empty: it has no end."),
        "periods": Display(label="Periods", help="How many there are, from the start on. Empty: no limit."),
        "change": Display(
            label="Credits of the running period",
            required=False,
            unset="go back for the time that is left; the new ones come at once, in proportion",
            words={
                "prorate": "",
                "keep": "stay; the new terms begin where they end",
                "full": "go back for the time that is left; all of the new period come at once",
            },
            help="Of a recurring grant that exists, if its amount or its periods change. Only what is unspent goes back.",
        ),
        **WHY,
    }


class EndRecurringGrantForm(OperationForm[EndRecurringGrantRequest]):
    """Which recurring grant ends."""

    declared, use_case = EndRecurringGrantRequest, services.end_recurring_grant
    stake = NoStake("It moves no credits: what was granted stays, and nothing is granted after it.")
    shows = {"recurring_grant": Display(label="Name"), **WHY}


class IncomingTransfersForm(OperationForm[IncomingTransfersRequest]):
    """The form that accepts or refuses transfers from others."""

    declared, use_case = IncomingTransfersRequest, services.set_incoming_transfers
    stake = SETS_TERMS
    shows = {
        "accepted": Display(
            label="Transfers from others",
            words={True: "accept", False: "refuse"},
            help="Grants and refunds still work, and credits that have arrived stay.",
        ),
        **WHY,
    }


class VoidForm(OperationForm[VoidRequest]):
    """Why all unspent credits are taken back."""

    declared, use_case = VoidRequest, services.void
    stake = TAKES_BACK
    shows = WHY


class FreezeForm(OperationForm[FreezeRequest]):
    """Whether the holder is frozen."""

    declared, use_case = FreezeRequest, services.freeze
    stake = SETS_TERMS
    shows = {
        "frozen": Display(
            label="The holder",
            words={True: "is frozen", False: "is not frozen"},
            help="Grants, refunds, releases and captures of what is held still work.",
        ),
        **WHY,
    }


class ClockForm(OperationForm[ClockRequest]):
    """The time of a holder in a deployment for tests."""

    declared, use_case = ClockRequest, services.set_clock
    stake = NoStake("It moves no credits, and only a deployment for tests has it.")
    shows = {
        "now": Display(label="The holder's time (UTC)", help="It stands still until the next move, and only goes forward."),
        **WHY,
    }


class TransferForm(RecipientForm[TransferRequest]):
    """The form of a transfer: holder and amount."""

    recipient = "to"
    refers_to = {"to": "holder_id"}
    declared, use_case = TransferRequest, services.transfer
    stake = CREDITS_OF_ENTRY
    shows = {
        "to": Display(label="To holder"),
        "holder_again": AGAIN,
        "amount": Display(help="You can transfer only available credits."),
        **WHY,
    }


@dataclass(frozen=True, kw_only=True)
class EntryPage(FormPage[OperationForm[Any]]):
    """The page of a form that makes an entry."""

    is_tried = True

    def operation(self, form: OperationForm[Any]) -> Done:
        """Execute the request, and report its entry."""
        entry = form.use_case.execute(form.request)
        return Done(
            f"{KINDS[entry.kind].title} #{entry.sequence}",
            f"{_change(entry)} for {entry.holder_id}",
            url_of(entry),
            entry.replayed,
        )

    def dry_run(self, form: OperationForm[Any]) -> DryRun:
        """Describe the entry that it would make."""
        return dry_run_of(form.use_case, form.request)

    def try_out(self, form: OperationForm[Any], look: Callable[[OperationForm[Any], Any], Result]) -> Result:
        """Let `look` see the entry that it would make."""
        return look(form, form.use_case.execute(replace(form.request, dry_run=True)))

    def explain(self, error: LedgerError, form: OperationForm[Any]) -> str:
        """Return why it was not done, with amounts as pages write them."""
        return describe(error, fact_writer(type(error), unit_of(form.request.credit_type)))


def _change(entry: Entry) -> str:
    """Return the change of the entry, in words."""
    unit = unit_of(entry.credit_type)
    if entry.recurring_grant is not None:
        return f"recurring grant {entry.recurring_grant}"
    if entry.clock_us is not None:
        return f"test clock at {from_us(entry.clock_us):%Y-%m-%d %H:%M} UTC"
    if entry.freezes is not None:
        return "frozen" if entry.freezes else "no longer frozen"
    if entry.accepts_transfers is not None:
        return f"transfers from others {'accepted' if entry.accepts_transfers else 'refused'}"
    return f"limit {unit.amount(entry.overdraft or 0)}" if entry.kind == "adjust" else unit.signed_amount(entry.amount)


def account_of(row: EntryListing | reads.Balance) -> dict[str, Any]:
    return {"holder_id": row.holder_id, "credit_type": row.credit_type}


def url_of(row: EntryListing | Entry) -> str:
    return entry_url(row.holder_id, row.credit_type, row.sequence)


# The pages --------------------------------------------------------------------------------------------


def grant_view(
    model_admin: ReadOnlyAdmin, request: HttpRequest, *, holder_id: str = "", credit_type: str = "credits"
) -> HttpResponse:
    """Show the form of a grant, or execute it."""
    return EntryPage(
        form=GrantForm,
        initial={"holder_id": holder_id, "credit_type": credit_type},
        title=f"Grant credits to {holder_id}" if holder_id else "Grant credits",
        button="Grant",
        explanation="The grant adds a new lot.",
        back=account_url(holder_id, credit_type) if holder_id else reverse("admin:ledger_account_changelist"),
    ).view(model_admin, request)


def _of_account(account: reads.Balance, **page: Any) -> EntryPage:
    """Return the page of a form about this account, to whose page it returns."""
    return EntryPage(fixed=account_of(account), back=account_url(account.holder_id, account.credit_type), **page)


def overdraft_view(model_admin: ReadOnlyAdmin, request: HttpRequest, account: reads.Balance) -> HttpResponse:
    """Show the form of an overdraft, or set it."""
    return _of_account(
        account,
        form=OverdraftForm,
        initial={"limit": account.overdraft},
        title=f"Overdraft of {account.holder_id}",
        button="Set the limit",
        explanation=(
            f"Spends may take the balance of {unit_of(account.credit_type).name} this far below 0. Holds and transfers may not."
        ),
    ).view(model_admin, request)


def budget_view(model_admin: ReadOnlyAdmin, request: HttpRequest, account: reads.Balance) -> HttpResponse:
    """Show the form of a budget, with the settings of the one that the query names, or set it."""
    known = next((each for each in _budgets_of(account) if each.name == request.GET.get("budget")), None)
    initial: dict[str, Any] = {"window": "month", "time_zone": "UTC", "by": "holder", "mode": "hard"}
    if known is not None:
        initial = {"budget": known.name, **{name: getattr(known.settings, name) for name in (*SETTINGS, "parent")}}
    return _of_account(
        account,
        form=BudgetForm,
        initial=initial,
        title=f"Budget of {account.holder_id}",
        button="Set the budget",
        explanation=(
            f"Limits what may be spent of {unit_of(account.credit_type).name} in a window of time. It counts from now on; with "
            f"the same window and scope as before, it continues counting."
        ),
    ).view(model_admin, request)


def end_budget_view(model_admin: ReadOnlyAdmin, request: HttpRequest, account: reads.Balance) -> HttpResponse:
    """Show the form that ends a budget, or end it."""
    names = ", ".join(each.name for each in _budgets_of(account))
    return _of_account(
        account,
        form=EndBudgetForm,
        initial={"budget": request.GET.get("budget", "")},
        title=f"End a budget of {account.holder_id}",
        button="End the budget",
        explanation=f"The account has the budgets {names}." if names else "The account has no budgets.",
    ).view(model_admin, request)


def _budgets_of(account: reads.Balance) -> list[reads.ShownBudget]:
    return reads.budgets(account.holder_id, account.credit_type)


def recurring_grant_view(model_admin: ReadOnlyAdmin, request: HttpRequest, account: reads.Balance) -> HttpResponse:
    """Show the form of a recurring grant, with the terms of the one that the query names, or set it."""
    known = _recurring_grant_of(account, request.GET.get("recurring_grant", ""))
    initial: dict[str, Any] = {"interval": "month", "interval_count": 1, "time_zone": "UTC"}
    if known is not None:
        facts = known.terms._asdict() | {"starts_at": known.starts_at, "ends_at": known.ends_at}
        initial = {"recurring_grant": known.name} | {name: item for name, item in facts.items() if not name.endswith("_us")}
    return _of_account(
        account,
        form=RecurringGrantForm,
        initial=initial,
        title=f"Recurring grant to {account.holder_id}",
        button="Set the recurring grant",
        explanation=(
            f"Grants {unit_of(account.credit_type).name} when each period begins. Other terms begin with the first period that "
            f"was not granted yet."
        ),
    ).view(model_admin, request)


def end_recurring_grant_view(model_admin: ReadOnlyAdmin, request: HttpRequest, account: reads.Balance) -> HttpResponse:
    """Show the form that ends a recurring grant, or end it."""
    names = ", ".join(each.name for each in reads.recurring_grants(account.holder_id, account.credit_type, upcoming=0))
    return _of_account(
        account,
        form=EndRecurringGrantForm,
        initial={"recurring_grant": request.GET.get("recurring_grant", "")},
        title=f"End a recurring grant to {account.holder_id}",
        button="End the recurring grant",
        explanation=f"The account has {names}. What was granted stays." if names else "The account has no recurring grants.",
    ).view(model_admin, request)


def _recurring_grant_of(account: reads.Balance, name: str) -> reads.ShownRecurringGrant | None:
    return reads.recurring_grant(account.holder_id, account.credit_type, name=name, upcoming=0) if name else None


def incoming_transfers_view(model_admin: ReadOnlyAdmin, request: HttpRequest, account: reads.Balance) -> HttpResponse:
    """Show the form that accepts or refuses transfers from others, or execute it."""
    is_accepted = reads.incoming_transfers(account.holder_id, account.credit_type).accepted
    verb = "accepts" if is_accepted else "refuses"
    return _of_account(
        account,
        form=IncomingTransfersForm,
        initial={"accepted": is_accepted},
        title=f"Transfers to {account.holder_id}",
        button="Save",
        explanation=f"{account.holder_id} {verb} transfers of {unit_of(account.credit_type).name} from others.",
    ).view(model_admin, request)


def void_view(model_admin: ReadOnlyAdmin, request: HttpRequest, account: reads.Balance) -> HttpResponse:
    """Show the form that takes back all unspent credits, or do it."""
    unit = unit_of(account.credit_type)
    return _of_account(
        account,
        form=VoidForm,
        title=f"Revoke all unspent credits of {account.holder_id}",
        button="Revoke all",
        explanation=(
            f"The revocation takes back the unspent credits in each of the open lots ({len(account.lots)}), even if they "
            f"are not yet effective. {unit.amount(account.held)} {are(account.held, unit)} held until their holds are released."
        ),
    ).view(model_admin, request)


def freeze_view(model_admin: ReadOnlyAdmin, request: HttpRequest, account: reads.Balance) -> HttpResponse:
    """Show the form that freezes a holder or ends that, or do it."""
    is_frozen = reads.freeze(account.holder_id).frozen
    return _of_account(
        account,
        form=FreezeForm,
        initial={"frozen": is_frozen},
        title=f"Freeze {account.holder_id}",
        button="Save",
        explanation=(
            f"{account.holder_id} is {'frozen' if is_frozen else 'not frozen'}. The ledger refuses spends, holds and transfers "
            f"of a frozen holder, in all credit types."
        ),
    ).view(model_admin, request)


def clock_view(model_admin: ReadOnlyAdmin, request: HttpRequest, account: reads.Balance) -> HttpResponse:
    """Show the form that moves the test clock of a holder, or do it."""
    clock = reads.clock(account.holder_id)
    has = "follows the server's time" if clock.now is None else "has a test clock"
    return _of_account(
        account,
        form=ClockForm,
        title=f"Test clock of {account.holder_id}",
        button="Move the clock",
        explanation=(
            f"{account.holder_id} {has}: it is {account.as_of:%Y-%m-%d %H:%M} UTC for this holder. Expiry, holds, budgets, "
            f"recurring grants and invoices follow the clock, in all credit types."
        ),
    ).view(model_admin, request)


def transfer_view(model_admin: ReadOnlyAdmin, request: HttpRequest, account: reads.Balance) -> HttpResponse:
    """Show the form of a transfer, or execute it."""
    unit = unit_of(account.credit_type)
    return _of_account(
        account,
        form=TransferForm,
        title=f"Transfer credits of {account.holder_id}",
        button="Transfer",
        explanation=(
            f"{unit.amount(account.available)} {are(account.available, unit)} available. "
            f"The credits keep their expiry, priority and source."
        ),
    ).view(model_admin, request)
