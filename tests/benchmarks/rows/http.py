"""Spends over HTTP by 16 clients, against floors, rivals, and a hot holder."""

from statistics import median
from typing import Any

from tests.benchmarks.ground import HOLDERS, SPEND, Ground, Web
from tests.benchmarks.measuring import Result, interleaved, result

SECONDS = 2.0
SPENDS = "POST …/spends, 16 clients"
HOT_SPENDS = "all on one hot holder"
OURS = "/v1/holders/{holder}/spends"
PATHS = {
    "ledger": OURS,
    "key only": "/rivals/key-only/{holder}",
    "key only, short way": "/v1/rivals/key-only/{holder}",
    "lean key only": "/v1/rivals/lean-key-only/{holder}",
    "nothing": "/v1/rivals/nothing/{holder}",
    "orm": "/v1/rivals/orm/{holder}",
    "row lock": "/v1/rivals/row-lock/{holder}",
    "table lock": "/v1/rivals/table-lock/{holder}",
    "serializable": "/v1/rivals/serializable/{holder}",
    "double entry": "/v1/rivals/double-entry/{holder}",
    "sum at read": "/v1/rivals/sum-at-read/{holder}",
}
HOT = ("ledger", "orm", "row lock", "table lock", "serializable")

ORM_LOTS = """
INSERT INTO rivals.holder (holder_id, balance)
SELECT 'bench-' || n, 3 * 10::bigint ^ 12 FROM generate_series(0, %(holders)s - 1) n
ON CONFLICT DO NOTHING;
"""
ORM_FIRST = """
INSERT INTO rivals.entry
    (holder_id, credit_type, sequence, kind, amount, balance, lots, drawn, idempotency_key, request_digest, recorded_at, actor,
     reason, reference, previous_digest, digest)
SELECT 'bench-' || n, 'credits', s, 'grant', 10::bigint ^ 12, s * 10::bigint ^ 12,
       (SELECT jsonb_agg(jsonb_build_array(l, 10::bigint ^ 12, 1700000000000000, NULL, 100, 0)) FROM generate_series(1, s) l),
       '[]', 'lot-' || s, repeat('0', 64), now(), 'key:bench', '', '', repeat('0', 64), repeat('0', 64)
FROM generate_series(0, %(holders)s - 1) n, generate_series(1, 3) s
"""
SHAPES = """
INSERT INTO rivals.account SELECT holder_id, balance FROM rivals.holder UNION ALL SELECT 'revenue', 0;
INSERT INTO rivals.movement (holder_id, amount, idempotency_key, reason)
SELECT holder_id, 10::bigint ^ 9, 'lot-' || n, '' FROM rivals.holder, generate_series(1, 100) n;
"""


def furnish(ground: Ground) -> None:
    """10,000 holders with three lots each, for us and for the rivals."""
    ground.grant_to_all()
    with ground.superuser() as connection:
        connection.execute(ORM_LOTS.replace("%(holders)s", str(HOLDERS)))
        connection.execute(ORM_FIRST.replace("%(holders)s", str(HOLDERS)))
        connection.execute(SHAPES)
    ground.settle()


def run(ground: Ground) -> list[Result]:
    """All of them on one server, interleaved."""
    furnish(ground)
    rates: dict[str, list[float]] = {}
    with ground.web() as web:
        for path in PATHS.values():
            _rate(web, path, seconds=0.5)
        spread = {name: _measure(web, path, holders=HOLDERS) for name, path in PATHS.items()}
        hot = {f"{name}, hot": _measure(web, PATHS[name], holders=1) for name in HOT}
        rates = interleaved(spread | hot)
    return _results(rates)


def _measure(web: Web, path: str, **options: Any) -> Any:
    return lambda: _rate(web, path, **options)


def _rate(web: Web, path: str, **options: Any) -> float:
    return web.load(path, body=SPEND, **{"seconds": SECONDS, "holders": HOLDERS} | options).per_second


def _results(rates: dict[str, list[float]]) -> list[Result]:
    ours = rates["ledger"]
    lines = [
        result("http", SPENDS, "a DRF view that only checks the key", ours, rates["key only"], aim=">= 0.45",
               context=f"{median(ours):.0f}/s beside {median(rates['key only']):.0f}/s"),
        result("http", SPENDS, "that view, sent our short way past the middleware", ours, rates["key only, short way"],
               context=f"{median(rates['key only, short way']):.0f}/s"),
        result("http", SPENDS, "a straightforward ORM implementation", ours, rates["orm"], aim=">= 2.5",
               context=f"{median(rates['orm']):.0f}/s"),
        result("http", HOT_SPENDS, "spread over 10,000 holders", rates["ledger, hot"], ours, aim=">= 0.5",
               context=f"{median(rates['ledger, hot']):.0f}/s"),
    ]  # fmt: skip
    for name, words in (
        ("row lock", "SELECT FOR UPDATE on a holder row with a cached balance"),
        ("table lock", "LOCK TABLE"),
        ("serializable", "SERIALIZABLE with retries"),
    ):
        hot = rates[f"{name}, hot"]
        lines += [
            result("http", SPENDS, words, ours, rates[name], aim=">= 1.0", context=f"{median(rates[name]):.0f}/s"),
            result("http", HOT_SPENDS, words, rates["ledger, hot"], hot, aim=">= 1.0", context=f"{median(hot):.0f}/s"),
        ]
    for name, words in (
        ("double entry", "double entry with a shared counter-account, in one server function"),
        ("sum at read", "a sum over 100 entries at every spend, in one server function"),
    ):
        lines.append(result("http", SPENDS, words, ours, rates[name], context=f"{median(rates[name]):.0f}/s"))
    lines += [
        result("http", HOT_SPENDS, "the ORM implementation", rates["ledger, hot"], rates["orm, hot"]),
        result("http", SPENDS, "our own way through, only checking the key", ours, rates["lean key only"],
               context=f"{median(rates['lean key only']):.0f}/s"),
        result("http", SPENDS, "Django's handler that answers at once", ours, rates["nothing"],
               context=f"{median(rates['nothing']):.0f}/s"),
    ]  # fmt: skip
    return lines
