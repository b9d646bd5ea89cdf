"""The limits of an account, as its customer reads them: what each budget allows, and what is used of it."""

from datetime import datetime
from decimal import Decimal
from typing import Final
from zoneinfo import ZoneInfo

from ledger.portal.parts import Cell, PageList
from ledger.portal.texts import TEXTS
from ledger.reads import BudgetUse, ShownBudget, budgets
from ledger.rules.budget_states import BY_HOLDER, Budget
from ledger.rules.budget_windows import ROLLING
from ledger.rules.instants import to_text, to_us
from ledger.typesetting.languages import Language
from ledger.units import CreditUnit

ROWS: Final = 50
NAME: Final = "limits"


def limits_section(holder_id: str, unit: CreditUnit, language: Language, zone: ZoneInfo) -> PageList:
    """Return the limits of an account: those that count everything first, then the subjects that have used most.

    At most ROWS; without a budget it has no rows.
    """
    found = sorted(budgets(holder_id, unit.credit_type), key=lambda budget: (bool(budget.settings.within), budget.name))
    uses = [(settings, use) for budget in found for settings, use in _rows_of_budget(budget)][:ROWS]
    texts = TEXTS[language.code]
    return PageList(
        name=NAME,
        title=texts["limits"],
        empty="",
        headers=[Cell(texts["whose"]), Cell(texts["limit"]), Cell(texts["used"], is_number=True), Cell(texts["resets"])],
        cells=[_cells(settings, use, unit, language, zone) for settings, use in uses],
        rows=[_row(settings, use) for settings, use in uses],
    )


def _rows_of_budget(budget: ShownBudget) -> list[tuple[Budget, BudgetUse | None]]:
    """Return a row for each subject that has used most, if it is in force, and one for each of its settings that come."""
    return [*((budget.settings, use) for use in budget.usage), *((settings, None) for settings in budget.coming)]


def _cells(settings: Budget, use: BudgetUse | None, unit: CreditUnit, language: Language, zone: ZoneInfo) -> list[Cell]:
    texts = TEXTS[language.code]
    window = texts["window_hours"] if settings.window == ROLLING else texts[f"window_{settings.window}"]
    limit = texts["limit_of"].format(
        amount=_number(settings.limit, unit, language), unit=unit.unit, window=window.format(hours=settings.hours)
    )
    if use is None:
        assert settings.starts_at is not None
        limit = texts["limit_from"].format(limit=limit, at=language.date_and_time(settings.starts_at, zone))
        return [Cell(_subject_to_come(settings) or texts["everything"]), Cell(limit), Cell("", is_number=True), Cell("")]
    return [
        Cell(" › ".join(_subjects(use)) or texts["everything"]),
        Cell(limit),
        Cell(_number(use.used, unit, language), is_number=True, is_urgent=use.remaining == 0),
        Cell(language.date_and_time(use.resets_at, zone) if use.resets_at else ""),
    ]


def _row(settings: Budget, use: BudgetUse | None) -> dict[str, object]:
    return {
        "name": settings.name,
        "subject": settings.subject if use is None else use.subject,
        "within": [] if use is None else list(use.within),
        "starts_at": _instant(settings.starts_at),
        "ends_at": _instant(settings.ends_at),
        "limit": settings.limit,
        "window": settings.window,
        "hours": settings.hours,
        "mode": settings.mode,
        "used": 0 if use is None else use.used,
        "remaining": settings.limit if use is None else use.remaining,
        "resets_at": None if use is None else _instant(use.resets_at),
    }


def _subject_to_come(settings: Budget) -> str:
    """Whose use a budget will count, where that is not everything's: the one subject, or each value of a label."""
    return settings.subject or settings.label or ("" if settings.by == BY_HOLDER else settings.by)


def _number(amount: int, unit: CreditUnit, language: Language) -> str:
    return language.number(Decimal(amount).scaleb(-unit.scale), decimals=unit.scale)


def _subjects(use: BudgetUse) -> list[str]:
    return [*use.within, *([] if use.subject is None else [use.subject])]


def _instant(moment: datetime | None) -> str | None:
    return None if moment is None else to_text(to_us(moment))
