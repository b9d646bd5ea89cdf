"""A recorded trace of requests to an LLM played as spends, at its own pace and faster, and how long each answer took.

    python -m tests.benchmarks.trace ../shared/data/AzureLLMInferenceTrace_code.csv --seconds 60

At each speed, as much of the trace is played as goes into the given time. A request is sent at its instant whether or not earlier
ones are answered, as far as 64 connections go; the latency counts from the instant at which it was due, so that waiting for a
connection is not left out. Source: https://github.com/Azure/AzurePublicDataset.
"""

import argparse
import http.client
import json
import os
import queue
import random
import sys
import threading
import time
import uuid
from datetime import datetime
from pathlib import Path

from tests.benchmarks.picture import percentiles_picture
from tests.benchmarks.server import KEY, RESULTS, ROOT, BenchmarkServer, Web

SPEEDS = (1.0, 10.0, 100.0)
CONNECTIONS = 64
HOLDERS = 500
PERCENTILES = (50, 75, 90, 95, 99, 99.9)


def read(path: Path) -> list[tuple[float, int]]:
    """(seconds since the first request, tokens) of every request."""
    moments: list[tuple[datetime, int]] = []
    with path.open() as lines:
        next(lines)
        for line in lines:
            moment, context, generated = line.split(",")
            moments.append((datetime.fromisoformat(moment[:26]), int(context) + int(generated)))
    return [((moment - moments[0][0]).total_seconds(), tokens) for moment, tokens in moments]


def play(web: Web, uses: list[tuple[float, int]], speed: float) -> list[float]:
    """Send every request when it is due; the latencies in milliseconds, sorted."""
    due: queue.SimpleQueue[tuple[float, int] | None] = queue.SimpleQueue()
    latencies: list[float] = []
    start = time.perf_counter() + 0.2
    workers = [threading.Thread(target=_client, args=(web.port, due, latencies)) for _ in range(CONNECTIONS)]
    for worker in workers:
        worker.start()
    for offset, tokens in uses:
        at = start + offset / speed
        time.sleep(max(0.0, at - time.perf_counter()))
        due.put((at, tokens))
    for _ in workers:
        due.put(None)
    for worker in workers:
        worker.join()
    return sorted(latencies)


def _client(port: int, due: "queue.SimpleQueue[tuple[float, int] | None]", latencies: list[float]) -> None:
    """Send each spend when it is due, and record its latency from then on."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while (item := due.get()) is not None:
        at, tokens = item
        _spend(connection, tokens)
        latencies.append((time.perf_counter() - at) * 1e3)
    connection.close()


def _spend(connection: http.client.HTTPConnection, tokens: int) -> None:
    """Send a spend; again where the connection was closed."""
    headers = {"Authorization": f"Bearer {KEY}", "Idempotency-Key": str(uuid.uuid4()), "Content-Type": "application/json"}
    body = json.dumps({"amount": tokens, "reason": "completion"})
    path = f"/v1/holders/trace-{random.randrange(HOLDERS)}/spends"
    for is_last_try in (False, True):
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            answer.read()
            break
        except (ConnectionError, http.client.RemoteDisconnected):
            # The server closes what has been idle for half a minute. The key makes it safe to send again.
            connection.close()
            if is_last_try:
                raise
    if answer.status != 201:
        raise RuntimeError(f"status {answer.status}")


def at_percentiles(latencies: list[float]) -> list[float]:
    """The latencies at PERCENTILES."""
    return [latencies[min(len(latencies) - 1, int(len(latencies) * share / 100))] for share in PERCENTILES]


def main() -> None:
    """Play at each speed, print the percentiles, draw them."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.trace", description=__doc__)
    parser.add_argument("trace", type=Path, help="CSV file: TIMESTAMP,ContextTokens,GeneratedTokens")
    parser.add_argument("--seconds", type=float, default=60, help="how long at each speed (60)")
    parser.add_argument("--out", type=Path, default=RESULTS / "trace.svg")
    options = parser.parse_args()
    recorded = read(options.trace)
    RESULTS.mkdir(exist_ok=True)
    server = BenchmarkServer(Path(os.environ.get("LEDGER_DATA_DIR", str(ROOT / ".data"))).absolute() / "bench-trace")
    series = []
    try:
        server.grant_to_all("trace-", HOLDERS)
        with server.web() as web:
            play(web, recorded[:200], 100.0)
            for speed in SPEEDS:
                uses = [use for use in recorded if use[0] <= options.seconds * speed]
                found = at_percentiles(play(web, uses, speed))
                series.append((f"{speed:g} ×", found))
                listed = "  ".join(f"p{mark:g} {value:.1f}" for mark, value in zip(PERCENTILES, found, strict=True))
                sys.stdout.write(f"{speed:>5g} × its pace, {len(uses)} requests in {uses[-1][0] / speed:.1f} s:  {listed} ms\n")
                sys.stdout.flush()
    finally:
        server.close()
    title = "Latency of a spend: the Azure LLM code trace at its pace, 10 and 100 times it"
    options.out.write_text(percentiles_picture(series, title=title))


if __name__ == "__main__":
    main()
