"""The limits of an account, as its customer reads them: what each budget allows, and what is used of it."""

from datetime import datetime
from decimal import Decimal
from typing import Final
from zoneinfo import ZoneInfo

from ledger.portal.parts import Cell, PageList
from ledger.portal.texts import TEXTS
from ledger.reads import BudgetUse, ShownBudget, budgets
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
    uses = [(budget, use) for budget in found for use in budget.usage][:ROWS]
    texts = TEXTS[language.code]
    return PageList(
        name=NAME,
        title=texts["limits"],
        empty="",
        headers=[Cell(texts["whose"]), Cell(texts["limit"]), Cell(texts["used"], is_number=True), Cell(texts["resets"])],
        cells=[_cells(budget, use, unit, language, zone) for budget, use in uses],
        rows=[_row(budget, use) for budget, use in uses],
    )


def _cells(budget: ShownBudget, use: BudgetUse, unit: CreditUnit, language: Language, zone: ZoneInfo) -> list[Cell]:
    texts, settings = TEXTS[language.code], budget.settings
    window = texts["window_hours"] if settings.window == ROLLING else texts[f"window_{settings.window}"]
    limit = texts["limit_of"].format(
        amount=_number(settings.limit, unit, language), unit=unit.unit, window=window.format(hours=settings.hours)
    )
    return [
        Cell(" › ".join(_subjects(use)) or texts["everything"]),
        Cell(limit),
        Cell(_number(use.used, unit, language), is_number=True, is_urgent=use.remaining == 0),
        Cell(language.date_and_time(use.resets_at, zone) if use.resets_at else ""),
    ]


def _row(budget: ShownBudget, use: BudgetUse) -> dict[str, object]:
    settings = budget.settings
    return {
        "name": budget.name,
        "subject": use.subject,
        "within": list(use.within),
        "limit": settings.limit,
        "window": settings.window,
        "hours": settings.hours,
        "mode": settings.mode,
        "used": use.used,
        "remaining": use.remaining,
        "resets_at": _instant(use.resets_at),
    }


def _number(amount: int, unit: CreditUnit, language: Language) -> str:
    return language.number(Decimal(amount).scaleb(-unit.scale), decimals=unit.scale)


def _subjects(use: BudgetUse) -> list[str]:
    return [*use.within, *([] if use.subject is None else [use.subject])]


def _instant(moment: datetime | None) -> str | None:
    return None if moment is None else to_text(to_us(moment))
