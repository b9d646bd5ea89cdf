"""Runs the code of pages for embedding projects: one request a line, as JSON, on the standard input.

Each block runs in a transaction that is rolled back, so that the other languages of an example find what it found. The names that
it defines stay for the later blocks of its page.
"""

import contextlib
import io
import json
import sys
import traceback
from typing import Any

import django


def run(code: str, names: dict[str, Any]) -> dict[str, str]:
    """What the code printed, and how it failed."""
    from django.db import connection, transaction

    printed, failure = io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(printed), transaction.atomic():
            exec(compile(code, "guide", "exec"), names)
            with connection.cursor() as cursor:
                cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            transaction.set_rollback(True)
    except Exception:
        failure = traceback.format_exc()
    return {"printed": printed.getvalue(), "failure": failure}


if __name__ == "__main__":
    django.setup()
    pages: dict[str, dict[str, Any]] = {}
    for line in sys.stdin:
        block = json.loads(line)
        answer = run(block["code"], pages.setdefault(block["page"], {"__name__": "guide"}))
        sys.__stdout__.write(json.dumps(answer) + "\n")  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]
