"""Spends over HTTP by 16 clients, over many holders and on a hot one: the ledger as it runs, and its lock alone.

As it runs, requests share transactions, which no competitor does. The lock alone is compared on one transaction for each spend.
"""

from statistics import median
from typing import Any

from tests.benchmarks.measuring import Result, interleaved, result
from tests.benchmarks.server import HOLDERS, SPEND, BenchmarkServer, Web

SECONDS = 2.0
SPENDS = "POST …/spends, 16 clients"
HOT_SPENDS = "all on one hot holder"
LOCK_ALONE = "the lock alone, 16 clients"
HOT_LOCK_ALONE = "the lock alone, on one hot holder"
OURS = "/v1/holders/{holder}/spends"
PATHS = {
    "ledger": OURS,
    "key only": "/competitors/key-only/{holder}",
    "key only, short way": "/v1/competitors/key-only/{holder}",
    "lean key only": "/v1/competitors/lean-key-only/{holder}",
    "nothing": "/v1/competitors/nothing/{holder}",
    "orm": "/v1/competitors/orm/{holder}",
    "advisory": "/v1/competitors/advisory/{holder}",
    "row lock": "/v1/competitors/row-lock/{holder}",
    "table lock": "/v1/competitors/table-lock/{holder}",
    "serializable": "/v1/competitors/serializable/{holder}",
    "double entry": "/v1/competitors/double-entry/{holder}",
    "sum at read": "/v1/competitors/sum-at-read/{holder}",
}
LOCKS = {
    "row lock": "SELECT FOR UPDATE on a holder row",
    "table lock": "LOCK TABLE",
    "serializable": "SERIALIZABLE with retries",
}
HOT = ("ledger", "orm", "advisory", *LOCKS)

ORM_LOTS = """
INSERT INTO competitors.holder (holder_id, balance)
SELECT 'bench-' || n, 3 * 10::bigint ^ 12 FROM generate_series(0, %(holders)s - 1) n
ON CONFLICT DO NOTHING;
"""
ORM_FIRST = """
INSERT INTO competitors.entry
    (holder_id, credit_type, sequence, kind, amount, balance, lots, drawn, idempotency_key, request_digest, recorded_at, actor,
     reason, reference, previous_digest, digest)
SELECT 'bench-' || n, 'credits', s, 'grant', 10::bigint ^ 12, s * 10::bigint ^ 12,
       (SELECT jsonb_agg(jsonb_build_array(l, 10::bigint ^ 12, 1700000000000000, NULL, 100, 0)) FROM generate_series(1, s) l),
       '[]', 'lot-' || s, repeat('0', 64), now(), 'key:bench', '', '', repeat('0', 64), repeat('0', 64)
FROM generate_series(0, %(holders)s - 1) n, generate_series(1, 3) s;
"""
SHAPES = """
INSERT INTO competitors.account SELECT holder_id, balance FROM competitors.holder UNION ALL SELECT 'revenue', 0;
INSERT INTO competitors.movement (holder_id, amount, idempotency_key, reason)
SELECT holder_id, 10::bigint ^ 9, 'lot-' || n, '' FROM competitors.holder, generate_series(1, 100) n;
"""


def competitors_rows(holders: int) -> str:
    """SQL that makes the competitors' own rows of `bench-0` and so on."""
    return f"{ORM_LOTS}{ORM_FIRST}{SHAPES}".replace("%(holders)s", str(holders))


def furnish(server: BenchmarkServer) -> None:
    """10,000 holders with three lots each, for us and for the competitors."""
    server.grant_to_all()
    with server.superuser() as connection:
        connection.execute(competitors_rows(HOLDERS))
    server.settle()


def run(server: BenchmarkServer) -> list[Result]:
    """All of them on one server, interleaved."""
    furnish(server)
    rates: dict[str, list[float]] = {}
    with server.web() as web:
        for path in PATHS.values():
            _rate(web, path, seconds=0.5)
        spread = {name: _measure(web, path, holders=HOLDERS) for name, path in PATHS.items()}
        hot = {f"{name}, hot": _measure(web, PATHS[name], holders=1) for name in HOT}
        rates = interleaved(spread | hot)
    return _results(rates)


def _measure(web: Web, path: str, **options: Any) -> Any:
    """What measures the rate of spends at a path."""
    return lambda: _rate(web, path, **options)


def _rate(web: Web, path: str, **options: Any) -> float:
    """Spends a second at a path."""
    return web.load(path, body=SPEND, **{"seconds": SECONDS, "holders": HOLDERS} | options).per_second


def _results(rates: dict[str, list[float]]) -> list[Result]:
    """The results of the row from the rates of each way."""
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
    lines += _lock_alone(rates) + _as_it_runs(rates)
    for name, words in (
        ("double entry", "double entry with a shared counter-account, in one server function"),
        ("sum at read", "a sum over 100 entries at every spend, in one server function"),
    ):
        lines.append(result("http", SPENDS, words, ours, rates[name], context=f"{median(rates[name]):.0f}/s"))
    lines += [
        result("http", HOT_SPENDS, "the ORM implementation", rates["ledger, hot"], rates["orm, hot"]),
        result("http", SPENDS, "our own way through, only checking the key", ours, rates["lean key only"],
               context=f"{median(rates['lean key only']):.0f}/s"),
        result("http", SPENDS, "Django's handler that responds at once", ours, rates["nothing"],
               context=f"{median(rates['nothing']):.0f}/s"),
    ]  # fmt: skip
    return lines


def _lock_alone(rates: dict[str, list[float]]) -> list[Result]:
    """The advisory lock beside each other protection, in spends that differ in nothing else."""
    lines = []
    for name, words in LOCKS.items():
        for what, spread_or_hot in ((LOCK_ALONE, ""), (HOT_LOCK_ALONE, ", hot")):
            ours, other = rates[f"advisory{spread_or_hot}"], rates[f"{name}{spread_or_hot}"]
            context = f"{median(ours):.0f}/s beside {median(other):.0f}/s"
            lines.append(result("http", what, words, ours, other, aim=">= 1.0", context=context))
    return lines


def _as_it_runs(rates: dict[str, list[float]]) -> list[Result]:
    """The ledger, which shares transactions, beside each protection with a transaction for each spend."""
    lines = []
    for name, words in ({"advisory": "the ledger's own lock"} | LOCKS).items():
        for what, spread_or_hot in ((SPENDS, ""), (HOT_SPENDS, ", hot")):
            ours, other = rates[f"ledger{spread_or_hot}"], rates[f"{name}{spread_or_hot}"]
            aim = None if name == "advisory" else ">= 1.0"
            beside = f"{words}, one transaction for each spend"
            lines.append(result("http", what, beside, ours, other, aim=aim, context=f"{median(other):.0f}/s"))
    return lines
