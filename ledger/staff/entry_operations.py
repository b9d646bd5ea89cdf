"""What operators do about an entry: to refund, revoke, reverse or release it, or change the terms of its lot.

Each has its form, and its button with the page of the form. See Note [A double click is harmless].
"""

from datetime import datetime

from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse
from unfold.decorators import action

from ledger import reads, services
from ledger.models import EntryListing
from ledger.operators.permissions import REFUND_SPEND, REISSUE_LOT, RELEASE_HOLD, REVERSE_TRANSFER, REVOKE_GRANT
from ledger.rules.instants import to_us
from ledger.rules.kinds import KINDS, REFUNDABLE, taken_by
from ledger.rules.lots import Lot
from ledger.rules.refusal_texts import are
from ledger.rules.requests import RefundRequest, ReissueRequest, ReleaseRequest, ReversalRequest, RevokeRequest
from ledger.staff.approvals import NoStake, Stake, StakeRule
from ledger.staff.credit_amounts import CreditAmountsForm
from ledger.staff.kit.form_fields import Display
from ledger.staff.kit.pages import ReadOnlyAdmin
from ledger.staff.operations import CREDITS_OF_ENTRY, TAKES_BACK, WHY, EntryPage, OperationForm, account_of, url_of
from ledger.staff.related_entries import Related, is_hold
from ledger.units import unit_of


class RefundForm(OperationForm[RefundRequest], CreditAmountsForm[RefundRequest]):
    """The form of a refund: an amount, or all."""

    declared, use_case = RefundRequest, services.refund
    stake = CREDITS_OF_ENTRY
    shows = {"amount": Display(help="Empty for the whole rest."), **WHY}


class RevokeForm(OperationForm[RevokeRequest], CreditAmountsForm[RevokeRequest]):
    """The form of a revocation: an amount, or all."""

    declared, use_case = RevokeRequest, services.revoke
    stake = TAKES_BACK
    shows = RefundForm.shows


class ReissueForm(OperationForm[ReissueRequest]):
    """Other terms for a lot."""

    declared, use_case = ReissueRequest, services.reissue
    stake = StakeRule(lambda form, entry: [Stake(entry.credit_type, sum(amount for _, amount in entry.drawn))])
    shows = {
        "expires_at": Display(label="Expires at (UTC)", help="The new expiry; empty to keep the current one."),
        "never_expires": Display(label="Or it never expires", words={True: "yes", False: "no"}, required=False),
        "priority": Display(
            help="The new priority; empty to keep the current one. The ledger uses lots with a lower number first."
        ),
        **WHY,
    }


class ReversalForm(OperationForm[ReversalRequest], CreditAmountsForm[ReversalRequest]):
    """A reversal of a transfer: how much, or all."""

    declared, use_case = ReversalRequest, services.reverse
    stake = CREDITS_OF_ENTRY
    shows = {"amount": Display(help="Empty for all that the other holder has left."), **WHY}


class ReleaseForm(OperationForm[ReleaseRequest]):
    """The form of a release of a hold."""

    declared, use_case = ReleaseRequest, services.release
    stake = NoStake("It gives no credits: those that were held are the holder's own.")
    shows = WHY


class EntryOperations(ReadOnlyAdmin):
    """The operations about an entry, each for the kinds of entries and the permission that it needs."""

    actions_detail = ("refund", "revoke", "reissue", "release", "reverse")

    def has_refund_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return self._is_kind(request, object_id, *REFUNDABLE) and request.user.has_perm(REFUND_SPEND)

    def has_revoke_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return self._is_kind(request, object_id, *KINDS["revoke"].refers_to) and request.user.has_perm(REVOKE_GRANT)

    def has_reissue_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return self._is_kind(request, object_id, *KINDS["reissue"].refers_to) and request.user.has_perm(REISSUE_LOT)

    def has_release_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        row = self.get_object(request, unquote(object_id)) if object_id else None
        return row is not None and is_hold(row) and request.user.has_perm(RELEASE_HOLD)

    def has_reverse_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        row = self.get_object(request, unquote(object_id)) if object_id else None
        is_transfer = row is not None and row.kind == "transfer_out" and row.refers_to is None
        return is_transfer and request.user.has_perm(REVERSE_TRANSFER)

    def _is_kind(self, request: HttpRequest, object_id: str | None, *kinds: str) -> bool:
        row = self.get_object(request, unquote(object_id)) if object_id else None
        return row is not None and row.kind in kinds

    def has_nothing_left(self, request: HttpRequest, object_id: str) -> list[str]:
        """Hide the release of a closed hold, and the refund of a spend that was refunded in whole."""
        row = self.get_object(request, unquote(object_id))
        related: Related | None = request.__dict__.get("_related")
        if row is None or related is None:
            return []
        is_refunded = taken_by(row) > 0 and related.refunded == taken_by(row)
        is_closed = related.hold is not None and not related.hold.is_open
        return [name for name, is_over in (("refund", is_refunded), ("release", is_closed)) if is_over]

    @action(description="Refund", icon="undo", permissions=["refund"])
    def refund(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the form of a refund of this spend or capture, or execute it."""
        spend = self.row_of(request, object_id)
        refunded, unit = Related(spend).refunded, unit_of(spend.credit_type)
        left = taken_by(spend) - refunded
        before = f"; earlier refunds returned {unit.number(refunded)}" if refunded else ""
        return EntryPage(
            form=RefundForm,
            fixed=account_of(spend) | {"spend": spend.sequence},
            title=f"Refund {spend.kind} #{spend.sequence} of {spend.holder_id}",
            button="Refund",
            initial={"amount": left or None},
            explanation=(
                f"The entry took {unit.amount(taken_by(spend))}{before}. You can refund {unit.number(left)}. "
                f"The credits return to their lots."
            ),
            back=url_of(spend),
        ).view(self, request)

    @action(description="Revoke the rest", icon="block", permissions=["revoke"])
    def revoke(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the form of a revocation of what is unspent of the lot of this grant or reissue, or do it."""
        grant = self.row_of(request, object_id)
        unit, (lot, as_of) = unit_of(grant.credit_type), _lot_opened_by(grant)
        unspent = 0 if lot is None or lot.is_expired(to_us(as_of)) else lot.remaining
        added = grant.amount or sum(amount for _, amount in grant.drawn)
        return EntryPage(
            form=RevokeForm,
            fixed=account_of(grant) | {"grant": grant.sequence},
            title=f"Revoke the rest of {grant.kind} #{grant.sequence} of {grant.holder_id}",
            button="Revoke",
            initial={"amount": unspent or None},
            explanation=(
                f"The {grant.kind} added {unit.amount(added)}; {unit.number(unspent)} {are(unspent, unit)} unspent. "
                f"Revoking takes back only unspent credits."
            ),
            back=url_of(grant),
        ).view(self, request)

    @action(description="Change terms", icon="event_repeat", permissions=["reissue"])
    def reissue(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the form of other terms for the lot that this entry opened, or do it; without a lot nothing is left of it."""
        opening = self.row_of(request, object_id)
        unit, (lot, _) = unit_of(opening.credit_type), _lot_opened_by(opening)
        terms = ""
        if lot is not None:
            expires = "never expires" if lot.expires_at is None else f"expires at {lot.expires_at:%Y-%m-%d %H:%M} UTC"
            terms = f", which {expires} and has priority {lot.priority}"
        left = 0 if lot is None else lot.remaining
        return EntryPage(
            form=ReissueForm,
            fixed=account_of(opening) | {"lot": opening.sequence},
            title=f"Change the terms of lot #{opening.sequence} of {opening.holder_id}",
            button="Change",
            explanation=(
                f"{unit.amount(left)} {are(left, unit)} left in the lot{terms}. The lot closes, and these credits form a new lot "
                f"with the new terms. Held credits keep their terms."
            ),
            back=url_of(opening),
        ).view(self, request)

    @action(description="Release", icon="lock_open", permissions=["release"])
    def release(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the form of a release of this hold, or execute it."""
        row = self.row_of(request, object_id)
        hold = Related(row).hold
        assert hold is not None
        return EntryPage(
            form=ReleaseForm,
            fixed=account_of(row) | {"hold": row.sequence},
            title=f"Release hold #{row.sequence} of {row.holder_id}",
            button="Release",
            explanation=f"{hold.sentence(unit_of(row.credit_type))} The held credits return to their lots.",
            back=url_of(row),
        ).view(self, request)

    @action(description="Reverse", icon="undo", permissions=["reverse"])
    def reverse(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the form of a reversal of this transfer, or do it."""
        transfer = self.row_of(request, object_id)
        other = transfer.counterpart["holder_id"]
        return EntryPage(
            form=ReversalForm,
            fixed=account_of(transfer) | {"transfer": transfer.sequence, "to": other},
            title=f"Reverse transfer #{transfer.sequence} of {transfer.holder_id}",
            button="Reverse",
            explanation=(
                f"The transfer moved {unit_of(transfer.credit_type).amount(-transfer.amount)} to {other}. A reversal "
                f"takes back what {other} still has of it, and gives it back to the lots that it came from."
            ),
            back=url_of(transfer),
        ).view(self, request)


def _lot_opened_by(entry: EntryListing) -> tuple[Lot | None, datetime]:
    """Return the open lot that has the entry's number, None if nothing is left of it; and the time of the account."""
    balance = reads.balance(entry.holder_id, entry.credit_type)
    return next((lot for lot in balance.lots if lot.grant == entry.sequence), None), balance.as_of
