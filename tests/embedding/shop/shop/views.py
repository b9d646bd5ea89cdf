"""The shop's pages. Who may use them is left out: a real shop has logins."""

import asyncio
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from ledger import reads
from ledger import services as credits
from ledger.database.lock_names import HOLDER
from ledger.database.locking import LockedHandlers, on
from ledger.errors import InsufficientCredits
from ledger.portal import links
from shop import language_model, purchases
from shop.models import Order, Team


def team_page(request: HttpRequest, team: int) -> HttpResponse:
    """A team's balance, what expires next, and its orders."""
    found = get_object_or_404(Team, pk=team)
    shown = {"team": found, "balance": reads.balance(found.holder_id), "orders": Order.objects.filter(team=found)}
    return render(request, "shop/team.html", shown)


def too_few(refusal: InsufficientCredits) -> HttpResponse:
    """Say how many credits there are."""
    return HttpResponse(f"You have {refusal.facts['available']} credits.", status=402)


def credits_page(request: HttpRequest, team: int) -> HttpResponse:
    """Lead to the page of the team's credits: what expires, the history, the usage by day."""
    found = get_object_or_404(Team, pk=team)
    return redirect(links.link(holder_id=found.holder_id, request=request).url)


@require_POST
def order(request: HttpRequest, team: int) -> HttpResponse:
    """Order something."""
    found = get_object_or_404(Team, pk=team)
    try:
        purchases.place_order(found, request.POST["item"], int(request.POST["price"]))
    except InsufficientCredits as refusal:
        return too_few(refusal)
    return redirect("team", team)


class Upgrade(LockedHandlers, View):
    """Make a team pro, once: a double click waits for the first, and then reads what it has done."""

    locks = (on(HOLDER, "team-{team}"),)

    def post(self, request: HttpRequest, team: int) -> HttpResponse:
        """Upgrade the team."""
        try:
            is_new = purchases.upgrade(get_object_or_404(Team, pk=team))
        except InsufficientCredits as refusal:
            return too_few(refusal)
        return HttpResponse("Welcome to pro." if is_new else "You are pro.")


@require_POST
def bonus(request: HttpRequest, team: int) -> HttpResponse:
    """Give the team its credits of the day."""
    is_new = purchases.claim_bonus(get_object_or_404(Team, pk=team))
    return HttpResponse("Enjoy!" if is_new else "Come back tomorrow.")


async def ask(request: HttpRequest, team: int) -> HttpResponse:
    """Ask the language model: hold the most that an answer may cost, and capture what it did cost."""
    holder = {"holder_id": f"team-{team}"}
    key = request.headers["Idempotency-Key"]
    try:
        hold = await credits.ahold(**holder, amount=purchases.MOST_OF_AN_ANSWER, idempotency_key=f"{key}-hold")
    except InsufficientCredits as refusal:
        return too_few(refusal)
    try:
        answer = await language_model.answer(request.POST["question"])
    except BaseException:  # a caller who goes away too
        await asyncio.shield(credits.arelease(**holder, hold=hold.sequence, idempotency_key=f"{key}-release"))
        raise
    await credits.acapture(**holder, hold=hold.sequence, amount=answer.tokens, idempotency_key=f"{key}-capture")
    return HttpResponse(answer.text)


@csrf_exempt  # the payment provider has no cookie; a real shop checks its signature here
@require_POST
def payment_received(request: HttpRequest) -> JsonResponse:
    """What the payment provider calls."""
    event: Any = request.POST
    payment = purchases.receive_payment(
        get_object_or_404(Team, pk=event["team"]), reference=event["reference"], amount=int(event["credits"])
    )
    return JsonResponse({"payment": payment.pk})
