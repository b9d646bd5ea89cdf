"""The picture of the results: one bar for each ratio with an aim, as long as the aim is exceeded or missed. Plain SVG."""

from collections.abc import Sequence
from html import escape
from math import log10

from tests.benchmarks.measuring import Result

ROW_HEIGHT, LABEL_WIDTH, BAR_WIDTH = 26, 560, 300
DECADES = 1.5
"""To the left and to the right of the aim."""


def picture(results: Sequence[Result], *, title: str) -> str:
    """SVG of the results that have an aim: how many times better, right of the line, or worse than the aim."""
    shown = [each for each in results if each.aim is not None]
    height = 64 + ROW_HEIGHT * len(shown) + 12
    middle = LABEL_WIDTH + BAR_WIDTH / 2
    parts = [
        *_canvas(LABEL_WIDTH + BAR_WIDTH + 90, height),
        f'<text x="12" y="22" font-size="15" font-weight="600" fill="#1f2937">{escape(title)}</text>',
        f'<text x="{middle}" y="48" text-anchor="middle" fill="#6b7280">worse ← the aim → better (log)</text>',
    ]
    for number, result in enumerate(shown):
        parts += _bar(result, 60 + ROW_HEIGHT * number, middle)
    parts.append(f'<line x1="{middle}" x2="{middle}" y1="56" y2="{height - 10}" stroke="#1f2937" stroke-width="1.5"/></svg>')
    return "\n".join(parts) + "\n"


def _canvas(width: int, height: int) -> list[str]:
    """The beginning of an SVG of this size."""
    font = 'font-family="system-ui, sans-serif" font-size="12"'
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" {font}>',
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]


def _bar(result: Result, top: float, middle: float) -> list[str]:
    """The bar of a result: to the right of the middle where the aim is met."""
    assert result.aim is not None
    comparison, bound = result.aim.split()
    better = result.ratio / float(bound) if comparison == ">=" else float(bound) / max(result.ratio, 1e-9)
    length = max(-DECADES, min(DECADES, log10(max(better, 1e-9)))) / DECADES * BAR_WIDTH / 2
    colour = "#059669" if result.is_met else "#d97706"
    text = f"{result.what} / {result.relative_to}"
    sign = "≥" if comparison == ">=" else "≤"
    number = f"{result.ratio:.2f}" if result.ratio < 100 else f"{result.ratio:,.0f}"
    left, width = min(middle, middle + length), max(abs(length), 1)
    return [
        f'<text x="12" y="{top + 14}" fill="#374151">{escape(text if len(text) < 96 else text[:94] + "…")}</text>',
        f'<rect x="{left:.1f}" y="{top + 3}" width="{width:.1f}" height="15" rx="2" fill="{colour}"/>',
        f'<text x="{LABEL_WIDTH + BAR_WIDTH + 8}" y="{top + 14}" fill="#374151">{number} ({sign} {bound})</text>',
    ]


def percentiles_picture(series: Sequence[tuple[str, Sequence[float]]], *, title: str) -> str:
    """SVG of latencies at percentiles, one line per series; milliseconds upwards on a logarithmic scale."""
    width, height, left, bottom = 720, 360, 60, 320
    marks = (50, 75, 90, 95, 99, 99.9)
    top_ms = max(max(values) for _, values in series)
    low_ms = min(min(values) for _, values in series)
    span = log10(top_ms / low_ms) or 1.0

    def x(index: int) -> float:
        return left + index * (width - left - 120) / (len(marks) - 1)

    def y(milliseconds: float) -> float:
        return bottom - log10(milliseconds / low_ms) / span * (bottom - 60)

    parts = [
        *_canvas(width, height),
        f'<text x="12" y="24" font-size="15" font-weight="600" fill="#1f2937">{escape(title)}</text>',
        *(
            f'<text x="{x(index)}" y="{bottom + 22}" text-anchor="middle" fill="#6b7280">p{mark}</text>'
            for index, mark in enumerate(marks)
        ),
    ]
    for colour, (name, values) in zip(("#2563eb", "#059669", "#d97706", "#dc2626"), series, strict=False):
        points = " ".join(f"{x(index):.1f},{y(value):.1f}" for index, value in enumerate(values))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<text x="{x(index):.1f}" y="{y(value) - 6:.1f}" text-anchor="middle" fill="{colour}">{value:.1f}</text>'
            for index, value in enumerate(values)
        ]
        end = f'x="{x(len(marks) - 1) + 24:.1f}" y="{y(values[-1]) + 4:.1f}"'
        parts.append(f'<text {end} fill="{colour}">{escape(name)}</text>')
    parts.append(f'<text x="{left - 40}" y="{bottom + 22}" fill="#6b7280">ms</text></svg>')
    return "\n".join(parts) + "\n"
