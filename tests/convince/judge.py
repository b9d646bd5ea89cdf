"""Has Porcupine judge a history, and falsifies one, so that a judge that believes everything is found out."""

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

SOURCE: Final = Path(__file__).parent / "porcupine"
Row = dict[str, Any]


def build_judge(folder: Path) -> Path:
    """Build the judge with the Go that is installed; its module is pinned by go.sum."""
    program = folder / "judge"
    subprocess.run(["go", "build", "-o", program, "."], cwd=SOURCE, check=True)
    return program


def judge(program: Path, history: Sequence[Row], folder: Path) -> str:
    """Return the verdict: `linearizable`, or a sentence that begins with `not linearizable` or `undecided`."""
    file = folder / "history.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in history))
    done = subprocess.run([program, file], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 2):
        raise AssertionError(done.stderr)
    return done.stdout.strip()


def grant_a_refused_spend(history: Sequence[Row]) -> list[Row]:
    """Say that a spend was granted which was refused, for want of credits."""
    refused = next(row for row in history if row["kind"] == "spend" and row["outcome"] == "refused")
    last = max(row["sequence"] for row in history if row["holder"] == refused["holder"])
    return [
        row if row["key"] != refused["key"] or row["outcome"] != "refused" else row | {"outcome": "granted", "sequence": last + 1}
        for row in history
    ]


def read_one_credit_more(history: Sequence[Row]) -> list[Row]:
    """Say that a read showed one credit more than it did."""
    chosen = _middle([row for row in history if row["outcome"] == "read"])
    return [row if row is not chosen else row | {"balance": row["balance"] + 1} for row in history]


def forget_a_spend(history: Sequence[Row]) -> list[Row]:
    """Leave out a spend that took credits, with all its tries and what was done with it later."""
    gone = _middle([row for row in history if row["kind"] == "spend" and row["outcome"] == "granted"])["key"]
    return [row for row in history if gone not in (row["key"], row["of"])]


def read_what_was_before(history: Sequence[Row]) -> list[Row]:
    """Say that a read showed the account as it was before a spend that had been answered long before."""
    spends = sorted(
        (row for row in history if row["kind"] == "spend" and row["outcome"] == "granted"), key=lambda row: row["return"]
    )
    spend = _middle(spends)
    late = next(
        row for row in sorted(history, key=lambda row: row["call"])
        if row["outcome"] == "read" and row["holder"] == spend["holder"] and row["call"] > spend["return"]
    )  # fmt: skip
    before = {"balance": spend["balance"] + spend["amount"], "held": spend["held"], "sequence": spend["sequence"] - 1}
    return [row if row is not late else row | before for row in history]


def grant_twice(history: Sequence[Row]) -> list[Row]:
    """Say that the same request was granted a second time, as another entry."""
    spends = [row for row in history if row["kind"] == "spend" and row["outcome"] == "granted"]
    once = _middle(spends)
    last = max((row for row in spends if row["holder"] == once["holder"]), key=lambda row: row["sequence"])
    again = {"call": last["return"] + 1, "return": last["return"] + 2, "sequence": last["sequence"] + 1}
    return [*history, once | again | {"balance": last["balance"] - once["amount"], "held": last["held"]}]


def _middle(rows: Sequence[Row]) -> Row:
    return rows[len(rows) // 2]


FALSIFICATIONS: Final[tuple[Callable[[Sequence[Row]], list[Row]], ...]] = (
    grant_a_refused_spend,
    read_one_credit_more,
    forget_a_spend,
    read_what_was_before,
    grant_twice,
)
