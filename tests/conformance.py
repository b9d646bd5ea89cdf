"""Schemathesis against a running server: requests, good ones and bad ones, made from the OpenAPI document.

No answer is a 500; every answer has a status, a media type and a body that the document has for that call; what it forbids
is refused, and so is a call without a key.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
)

PATHS = {
    "ledger": r"^/(v1(/(holders|entries|balances|batches|keys?|webhooks|alerts|observations)\b|$)|healthz|readyz)",
    "rates": r"^/v1/(rates|quotes)\b",
    "catalogue": r"^/v1/(plans|customers|coupons|ratings|sellers|taxes|packs|purchases|payment-intents|providers|top-ups"
    r"|plan-moves|price-trials|vat-lookups|meters)\b",
    "subscriptions": r"^/v1/(subscriptions|usage-events)\b",
    "documents": r"^/v1/(invoices|payments|reminder(s|-holds)|mails?|credit-notes|tax-summary|books|deferred-revenue|months)\b",
}
"""The calls that one run is about. Each path of the document is in one of them."""

OF_THE_LEDGER = ("ledger", "rates")
"""Those without billing."""

# These are answered with a result for each operation or event: a wrong one has its own, and does not refuse the others.
RESULT_FOR_EACH = """
[[operations]]
include-path = ["/v1/batches", "/v1/usage-events", "/v1/observations"]
checks.negative_data_rejection.expected-statuses = [200, 400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429]
"""


CHECKS_OF_RESPONSES = CHECKS[:5]
"""Those of them that hold for a process that refuses every call of a part, whatever is asked."""


def ensure_conforms(web: Any, key: str, folder: Path, *parts: str, examples: int, checks: Sequence[str] = CHECKS) -> None:
    """Let Schemathesis call parts of the API, with `examples` made-up requests for each call; fail with what it found.

    The examples and the values at each field's bounds come on top of those.
    """
    command = [
        str(Path(sys.executable).with_name("st")),
        "run",
        f"{web.url}/v1/schema",
        "--include-path-regex",
        "|".join(PATHS[part] for part in parts),
        "--header",
        f"Authorization: Bearer {key}",
        "--checks",
        ",".join(checks),
        "--mode",
        "all",
        "--phases",
        "examples,coverage,fuzzing",
        "--max-examples",
        str(examples),
        "--seed",
        "1",
        "--generation-database",
        "none",
        "--suppress-health-check",
        "all",
        "--continue-on-failure",
        "--request-timeout",
        "60",
        "--no-color",
    ]
    (folder / "schemathesis.toml").write_text(RESULT_FOR_EACH)
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1800, check=False)
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-2_000:]
    assert "internal-error" not in web.log.read_text()
