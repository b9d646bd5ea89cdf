"""Charts of the operators' pages, for unfold's component: axes with units and grouped thousands, lines through their values.

No line is drawn above or below the values that it connects: a line is a staircase, or monotone between two values.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

GREY: Final = "#767d89"
"""The colour of the words at the axes: its contrast to a white page and to a black page is at least 4."""
STRONG: Final = {"borderColor": "var(--color-primary-600)", "borderWidth": 2}
FAINT: Final = {"borderColor": "var(--color-base-400)", "borderWidth": 1, "borderDash": [4, 4]}
STAIRCASE: Final = {"stepped": True}
MONOTONE: Final = {"cubicInterpolationMode": "monotone"}


def line(name: str, values: Sequence[float], *, look: dict[str, Any], shape: dict[str, Any]) -> dict[str, Any]:
    """A line through values, STRONG or FAINT; a STAIRCASE if a value lasts until the next one, MONOTONE otherwise."""
    return {"label": name, "data": list(values), "pointRadius": 0, "pointHitRadius": 8, **look, **shape}


BLUE: Final = "var(--color-primary-600)"
LIGHT_BLUE: Final = "#7cc0ea"
AMBER: Final = "#d97706"
RED: Final = "#dc2626"


def bars(name: str, values: Sequence[float], colour: str = BLUE) -> dict[str, Any]:
    """A bar for each value."""
    return {"label": name, "data": list(values), "backgroundColor": colour, "borderRadius": 3}


def data(labels: Sequence[str], *datasets: dict[str, Any]) -> str:
    """The chart's values: a label for each place on the horizontal axis, and the lines or bars."""
    return json.dumps({"labels": list(labels), "datasets": list(datasets)})


def options(*, unit: str, decimals: int = 0, is_stacked: bool = False, is_lying: bool = False) -> str:
    """The chart's look: an axis from 0 that names its unit, with at most that many decimals and grouped thousands.

    Args:
        is_stacked: bars of one place stand on each other, and a legend names them.
        is_lying: bars lie, because the names of their places are long.
    """
    number = {"maximumFractionDigits": decimals, "useGrouping": True}
    places: dict[str, Any] = {"ticks": _ticks(maxTicksLimit=12, maxRotation=0, autoSkipPadding=12), "grid": {"display": False}}
    places |= {"border": {"width": 0}, "stacked": is_stacked}
    amounts = {
        "stacked": is_stacked,
        "beginAtZero": True,
        "border": {"width": 0},
        "ticks": _ticks(maxTicksLimit=6, maxRotation=0, format=number, **({} if decimals else {"precision": 0})),
        "title": {"display": True, "text": unit, "color": GREY},
    }
    return json.dumps(
        {
            "animation": False,
            "responsive": True,
            "maintainAspectRatio": False,
            "locale": "en",
            "indexAxis": "y" if is_lying else "x",
            "interaction": {"mode": "index", "axis": "y" if is_lying else "x", "intersect": False},
            "plugins": {"legend": {"display": is_stacked, "position": "bottom", "labels": {"color": GREY, "boxWidth": 12}}},
            "scales": {"x": amounts, "y": places} if is_lying else {"x": places, "y": amounts},
        }
    )


def _ticks(**more: Any) -> dict[str, Any]:
    return {"color": GREY, **more}
