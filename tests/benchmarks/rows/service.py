"""A spend in the service layer, without HTTP, against the same spend as one server function."""

import uuid
from statistics import median

from django.db import connection, transaction

from ledger import services
from ledger.database.locks import holder_key, lock_number
from ledger.entry_rows import READ_COLUMNS, entry_from_row
from ledger.rules.entries import Entry
from ledger.rules.requests import SpendRequest
from tests.benchmarks.measuring import Result, cpu_of_process_us, cpu_us, interleaved, result
from tests.benchmarks.server import BenchmarkServer

SPENDS = 1_500
FUNCTION = f"SELECT {READ_COLUMNS} FROM competitors.spend(%s, %s, %s, %s, %s, %s, %s, %s, %s)"


def by_function(*, holder_id: str, amount: int, idempotency_key: str, actor: str, reason: str, reference: str) -> Entry:
    """A spend of which the server does everything; the request is checked and the entry read as the ledger does."""
    request = SpendRequest(
        holder_id=holder_id, amount=amount, idempotency_key=idempotency_key, actor=actor, reason=reason, reference=reference
    )
    parameters = (
        lock_number(holder_key(holder_id)), holder_id, "credits", amount, idempotency_key, request.digest()[:8], actor, reason,
        reference,
    )  # fmt: skip
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute(FUNCTION, parameters)
        return entry_from_row(cursor.fetchone())


def run(server: BenchmarkServer) -> list[Result]:
    """CPU of this process, and of both processes together."""
    server.grant_to_all("service-", 100)
    services.spend(holder_id="service-0", amount=1, idempotency_key=str(uuid.uuid4()))
    backend = connection.connection.info.backend_pid
    backend_us: dict[str, list[float]] = {"ledger": [], "function": []}

    def measured(name: str, spend: object) -> float:
        run_id = uuid.uuid4().hex[:8]

        def one(number: int) -> None:
            spend(  # type: ignore[operator]
                holder_id=f"service-{number % 100}", amount=120, idempotency_key=f"{run_id}-{number}",
                actor="key:bench", reason="chat completion", reference=f"req_{number}",
            )  # fmt: skip

        cpu_us(one, 100)
        start = cpu_of_process_us(backend)
        mine = cpu_us(lambda number: one(number + 1_000_000), SPENDS)
        backend_us[name].append((cpu_of_process_us(backend) - start) / SPENDS)
        return mine

    found = interleaved(
        {"ledger": lambda: measured("ledger", services.spend), "function": lambda: measured("function", by_function)}
    )
    both = {name: [mine + server for mine, server in zip(found[name], backend_us[name], strict=True)] for name in found}
    context = "; ".join(f"{name} {median(found[name]):.0f} + {median(backend_us[name]):.0f} µs in the server" for name in found)
    return [
        result("service", "spend, one process", "CPU of the process with one server function", found["ledger"], found["function"],
               aim="<= 1.8", context=context),
        result("service", "spend, process and server", "the same with one server function", both["ledger"], both["function"]),
    ]  # fmt: skip
