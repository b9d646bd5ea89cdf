"""The event loop's Python alone; many ordinary clients beside a few; and a holder with as many lots as one may have."""

from tests.benchmarks.loop import log_to_nowhere, measured
from tests.benchmarks.measuring import Result, cpu_of_process_us, interleaved, result
from tests.benchmarks.server import SPEND, BenchmarkServer, Web

SPENDS = "/v1/holders/{holder}/spends"
BALANCE = "/v1/holders/{holder}/balance"
HOLDERS = 2_000
LOTS = 499


def run(server: BenchmarkServer) -> list[Result]:
    """Measure all of them on one server."""
    server.grant_to_all("customer-", 1)
    server.grant_to_all("few-", HOLDERS)
    _grant_lots(server)
    with log_to_nowhere():
        loop = measured()
    found = [Result("loop", f"loop: {name}", "CPU of the event loop's Python", us, unit="µs") for name, us in loop.items()]
    with server.web() as web:
        took = interleaved(
            {
                "16": lambda: _web_us(web, SPENDS, clients=16, prefix="few-"),
                "1,000": lambda: _web_us(web, SPENDS, clients=1_000, prefix="few-"),
                "3 lots": lambda: _web_us(web, BALANCE, prefix="few-", method="GET"),
                f"{LOTS} lots": lambda: _web_us(web, BALANCE, prefix="many-", method="GET"),
            }
        )
    few, many = took["3 lots"], took[f"{LOTS} lots"]
    return [
        *found,
        result("loop", "spend, 1,000 clients, web CPU", "16 clients", took["1,000"], took["16"], context=_us(took["1,000"])),
        result("loop", f"balance of a holder with {LOTS} lots, web CPU", "with 3 lots", many, few, context=_us(many)),
    ]


def _grant_lots(server: BenchmarkServer) -> None:
    from ledger import services
    from ledger.rules.requests import GrantRequest

    grants = [GrantRequest(holder_id="many-0", amount=10, idempotency_key=f"lot-{n}", actor="key:bench") for n in range(LOTS)]
    services.batch(grants, mode="each", idempotency_key="many")


def _web_us(web: Web, path: str, *, prefix: str, method: str = "POST", clients: int = 16) -> float:
    """Return the CPU of the web processes for one request."""
    before = sum(cpu_of_process_us(pid) for pid in web.workers)
    holders, body = (HOLDERS if prefix == "few-" else 1), SPEND if method == "POST" else ""
    outcome = web.load(path, method=method, clients=clients, body=body, prefix=prefix, holders=holders)
    return (sum(cpu_of_process_us(pid) for pid in web.workers) - before) / outcome.answered


def _us(rounds: list[float]) -> str:
    return f"{sorted(rounds)[len(rounds) // 2]:.0f} µs"
