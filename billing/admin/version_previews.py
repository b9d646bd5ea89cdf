"""What a version of a plan changes for existing subscriptions, before it is saved: from when, for how many, and how much."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.utils import timezone

from billing.admin.prose import every, plan_sentences, price_sentence
from billing.generator.run.price_trials import USUAL_MONTHS, PriceTrial, compute_version_trials
from billing.models import Plan
from billing.orders import plans
from billing.orders.plan_move_orders import NewPlanMove
from billing.orders.plan_move_preview import CurrencySum, MovePreview, MovesPreview, move_preview
from billing.orders.plans import PlanTerms
from billing.rating.money import money_text
from ledger.staff.kit.cells import instant_words
from ledger.staff.kit.columns import table_of

SUBSCRIPTIONS_SHOWN: Final = 20
NO_TERM: Final = "not there"


def version_sentences(plan: Plan) -> list[str]:
    """Return what becomes of existing subscriptions, in sentences; the version may be one of a preview."""
    first = (
        f"This is version {plan.version}. New orders take it as soon as it is saved. Nothing changes for existing subscriptions "
        "before you move them, or an amendment names the plan again."
    )
    sentences = [first]
    preview = _move(plan)
    if preview.sums is None:
        sentences.append("They are too many to sum up here.")
    elif not preview.sums:
        sentences.append("No subscription is on an earlier version now.")
    else:
        sentences.append("If all were moved now, without usage and coupons:")
        sentences += map(sum_sentence, preview.sums)
    trials = compute_version_trials(plan, timezone.now())
    return [*sentences, *(_trial_sentence(key, trial) for key, trial in trials.items())]


def version_parts(plan: Plan, terms: PlanTerms) -> list[tuple[str, dict[str, Any]]]:
    """Return the tables of what changes: the terms beside those of the version before, and the first subscriptions."""
    before = Plan.objects.filter(code=plan.code, version__lt=plan.version).order_by("-version").first()
    parts = []
    if before is not None and (rows := _changed_terms(plans.terms_of(before.pk), terms)):
        headers = ["Terms", f"Version {before.version}", f"Version {plan.version}"]
        parts.append(("What changes", {"headers": headers, "rows": rows}))
    moved = _move(plan)
    if moved.subscriptions:
        shown = f"The first {len(moved.subscriptions)} subscriptions" if moved.following else "Subscriptions"
        parts.append((f"{shown}, if they were moved now", moved_table(moved.subscriptions)))
    return parts


def _move(plan: Plan) -> MovesPreview:
    order = NewPlanMove(plan=plan.code, effective_at=timezone.now(), actor="preview")
    return move_preview(order, after=None, limit=SUBSCRIPTIONS_SHOWN)


def sum_sentence(each: CurrencySum) -> str:
    """Return what a move changes for the subscriptions in a currency."""
    before, after, difference = (
        money_text(minor, each.currency) for minor in (each.before_minor, each.after_minor, each.difference_minor)
    )
    return f"{each.subscriptions:,} in {each.currency}: {before} a month so far, {after} then; the difference is {difference}."


def moved_table(rows: Sequence[MovePreview]) -> dict[str, Any]:
    """Return what a move changes for each of these subscriptions."""
    return table_of(
        rows,
        ("Subscription", "subscription"),
        ("Customer", "customer"),
        ("From version", lambda row: row.from_plan.version),
        ("Takes effect", lambda row: instant_words(row.takes_effect_at)),
        ("Monthly amount so far", lambda row: money_text(row.before_minor, row.currency_before)),
        ("Monthly amount then", lambda row: money_text(row.after_minor, row.currency)),
        ("Concerned too", lambda row: ", ".join(row.notes).replace("-", " ")),
    )


def _trial_sentence(key: str, trial: PriceTrial | None) -> str:
    if trial is None:
        return f"{key} measures in another way than before: what it would have brought cannot be computed."
    if not trial.total.periods:
        return f"{key} was not invoiced in the last {USUAL_MONTHS} months."
    total, currency = trial.total, trial.currency
    before, after, difference = (
        money_text(minor, currency) for minor in (total.before_minor, total.after_minor, abs(total.difference_minor))
    )
    which = f"the {total.periods:,} periods" if trial.is_whole else f"{total.periods:,} of the periods"
    more = "more" if total.difference_minor >= 0 else "less"
    return (
        f"Of {key}, {which} that were invoiced in the last {USUAL_MONTHS} months brought {before}; this version would have "
        f"brought {after} for the same use, {difference} {more}."
    )


def _changed_terms(before: PlanTerms, after: PlanTerms) -> list[list[str]]:
    """Return the prices that differ, by key, and the other terms that differ, each as a sentence of both versions."""
    old, new = _prices(before), _prices(after)
    rows = [
        [key, old.get(key, NO_TERM), new.get(key, NO_TERM)] for key in dict.fromkeys((*old, *new)) if old.get(key) != new.get(key)
    ]
    old_terms, new_terms = _other_terms(before, old), _other_terms(after, new)
    if old_terms != new_terms:
        ended = " ".join(each for each in old_terms if each not in new_terms)
        begun = " ".join(each for each in new_terms if each not in old_terms)
        rows.append(["Other terms", ended or NO_TERM, begun or NO_TERM])
    return rows


def _other_terms(terms: PlanTerms, prices: Mapping[str, str]) -> list[str]:
    return [each for each in plan_sentences(terms) if each not in prices.values()]


def _prices(terms: PlanTerms) -> dict[str, str]:
    return {price.key: price_sentence(price, terms.currency, every(terms.interval_of(price))) for _, price in terms.prices}
