"""Recorded requests, to be played again: when each came, and what it used.

Source: the Azure Public Dataset's LLM inference traces, one row a request: arrival time, prompt tokens, generated tokens.
https://github.com/Azure/AzurePublicDataset, data/AzureLLMInferenceTrace_code.csv, Microsoft, CC-BY 4.0; "Splitwise: Efficient
Generative LLM Inference Using Phase Splitting", ISCA 2024.
"""

import csv
import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final

COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
CREDITS_PER_PROMPT_TOKEN: Final = 1
CREDITS_PER_GENERATED_TOKEN: Final = 3
HOLDERS: Final = 300


class TraceInvalid(Exception):
    """The file is not a trace; the message names the line and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Use:
    """One recorded request. `number` counts the rows from 1; `came_at` is in UTC."""

    number: int
    came_at: datetime
    prompt_tokens: int
    generated_tokens: int

    @property
    def credits(self) -> int:
        """What it costs: 1 or more."""
        return self.prompt_tokens * CREDITS_PER_PROMPT_TOKEN + self.generated_tokens * CREDITS_PER_GENERATED_TOKEN

    @property
    def user(self) -> int:
        """Whose it is, 1 .. HOLDERS: by hash of the row number, so always the same. Low numbers use far more than high ones."""
        fraction = int.from_bytes(hashlib.sha256(str(self.number).encode()).digest()[:8]) / 2**64
        return 1 + int(HOLDERS * fraction**2)


def read_trace(path: Path, *, limit: int | None = None) -> list[Use]:
    """The first `limit` recorded requests of a file, or all of them.

    Raises:
        TraceInvalid: the columns are others, a value is not what it should be, or nothing is recorded.
    """
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        if not set(COLUMNS) <= set(rows.fieldnames or ()):
            raise TraceInvalid(f"{path}: the first line must name {', '.join(COLUMNS)}")
        uses = [_use(path, number, row) for number, row in enumerate(islice(rows, limit), 1)]
    if not uses:
        raise TraceInvalid(f"{path} contains no requests")
    return uses


def _use(path: Path, number: int, row: dict[str, str]) -> Use:
    try:
        came_at = datetime.fromisoformat(row["TIMESTAMP"])
        use = Use(
            number=number,
            came_at=came_at.replace(tzinfo=came_at.tzinfo or UTC),
            prompt_tokens=int(row["ContextTokens"]),
            generated_tokens=int(row["GeneratedTokens"]),
        )
    except (TypeError, ValueError) as error:
        raise TraceInvalid(f"{path}, line {number + 1}: {error}") from error
    if use.prompt_tokens < 0 or use.generated_tokens < 0 or not use.credits:
        raise TraceInvalid(f"{path}, line {number + 1}: token counts must not be negative, nor both 0")
    return use
