"""The form that moves subscriptions to the newest version of a plan, with what it would change, and how far moves are."""

import re
from collections.abc import Mapping
from datetime import UTC
from typing import Any, ClassVar, Final

from django import forms
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from billing.admin.order_forms.fields import OrderForm, names_of
from billing.admin.order_forms.once import OrderPage
from billing.admin.order_forms.subscriptions import MINUTE
from billing.admin.version_previews import moved_table, sum_sentence
from billing.models import Plan, PlanMove
from billing.orders import plan_move_progress
from billing.orders.plan_move_orders import NewPlanMove, start_plan_move
from billing.orders.plan_move_preview import move_preview
from billing.orders.plan_move_progress import MoveProgress
from ledger.staff.approvals import NoStake
from ledger.staff.kit.cells import instant_words, row_url
from ledger.staff.kit.columns import table_of
from ledger.staff.kit.form_fields import Display
from ledger.staff.kit.idempotent_forms import DryRun, RequestForm
from ledger.staff.kit.pages import ReadOnlyAdmin

MOVES_SHOWN: Final = 20
SUBSCRIPTIONS_SHOWN: Final = 20
VERSION: Final = re.compile("[0-9]{1,10}")
STAYS: Final = {"ended": "has ended", "already-there": "is on it already", "another-plan": "is on another plan then"}
"""Why a subscription stays, in words."""


class PlanMoveForm(OrderForm, RequestForm[NewPlanMove]):
    """Which subscriptions change to the newest version, and when."""

    stake = NoStake("It moves no money: later invoices bill by the other version.")
    declared = NewPlanMove
    shows: ClassVar[Mapping[str, Display | forms.Field]] = {
        "effective_at": Display(label="Takes effect at (UTC)", help="Each subscription is credited and charged from then on."),
        "versions": Display(label="From versions", make=names_of("", "Version"), help="Empty for all earlier versions."),
        "subscriptions": Display(
            label="Only subscriptions", make=names_of("subscription", "Subscription"), help="Empty for all."
        ),
    }

    def body(self) -> dict[str, Any]:
        """Return the versions as numbers."""
        body = super().body()
        if "versions" in body:
            body["versions"] = [int(text) if VERSION.fullmatch(text) else text for text in body["versions"]]
        return body


def move_view(model_admin: ReadOnlyAdmin, request: HttpRequest, plan: Plan) -> HttpResponse:
    """Show the form, then what the move would change per subscription and in sum, then order it."""
    return OrderPage(
        form=PlanMoveForm,
        collection="plan-moves",
        rows=PlanMove,
        about=plan,
        pointer="",
        write=lambda form: start_plan_move.execute(form.request),
        describe=lambda move, form: _describe_move(form.request),
        done=lambda move, form: (f"Plan move {move.pk}", f"subscriptions of {plan.code} change to its newest version"),
        fixed={"plan": plan.code},
        initial={"effective_at": timezone.now().astimezone(UTC).strftime(MINUTE)},
        title=f"Move subscriptions of {plan.code}",
        button="Move the subscriptions",
        explanation="Workers write an amendment for each subscription that is on an earlier version of the plan at that time.",
        back=row_url(Plan, plan.pk),
    ).view(model_admin, request)


def _describe_move(request: NewPlanMove) -> DryRun:
    preview = move_preview(request, after=None, limit=SUBSCRIPTIONS_SHOWN)
    when = instant_words(preview.effective_at)
    sentences = [
        f"Subscriptions on version {_list_versions(preview.from_versions)} change to version {preview.plan.version}, from {when}."
    ]
    sentences += map(sum_sentence, preview.sums or ())
    if preview.sums is None:
        sentences.append("They are too many to sum up here.")
    elif not preview.sums:
        sentences.append("No subscription is on these versions then.")
    sentences += [f"{number:,} that {STAYS[name]}: stays." for name, number in (preview.left_out or {}).items()]
    shown = f"The first {len(preview.subscriptions)}" if preview.following else "Subscriptions"
    return DryRun(sentences=sentences, parts=[(shown, moved_table(preview.subscriptions))])


def _list_versions(versions: list[int]) -> str:
    return ", ".join(map(str, versions))


def moves_table(plan: Plan) -> dict[str, Any]:
    """Return the moves to versions of a plan, the newest first, and how far each is."""
    return table_of(
        plan_move_progress.plan_moves(plan.code, limit=MOVES_SHOWN),
        ("Move", lambda move: move.row.pk),
        ("To version", lambda move: move.plan.version),
        ("From versions", lambda move: _list_versions(move.from_versions)),
        ("Takes effect", lambda move: instant_words(move.row.effective_at)),
        ("State", _state),
        ("Moved", lambda move: f"{move.moved:,}"),
        ("Stay", lambda move: ", ".join(f"{number:,} {name.replace('-', ' ')}" for name, number in move.left_out.items())),
        ("Reason", lambda move: move.row.reason),
        ("Actor", lambda move: move.row.actor),
    )


def _state(move: MoveProgress) -> str:
    if not move.is_open:
        return "done"
    return f"goes on; the last failure: {move.error}" if move.error else "goes on"
