"""A web process at a worker of a cluster does as the OpenAPI document says: it serves the ledger and refuses billing."""

from pathlib import Path

import pytest

from ledger import services
from ledger.models import SCOPES
from tests.billing.factories import unique
from tests.conformance import CHECKS, CHECKS_OF_RESPONSES, PATHS, ensure_conforms
from tests.conftest import database_url
from tests.distributed.cluster import Cluster


@pytest.fixture
def key(committed_db: None) -> str:
    """A key that may do everything."""
    return services.create_api_key(name=unique("conformance"), scopes=SCOPES)[1]


@pytest.fixture
def web(cluster: Cluster, key: str, server_processes):
    """A web process at a worker."""
    worker = cluster.workers[0]
    return server_processes(1, dsn=database_url("application", host=worker.host, port=worker.port))[0]


@pytest.mark.parametrize(
    ("parts", "checks"),
    [(["ledger"], CHECKS), ([part for part in PATHS if part != "ledger"], CHECKS_OF_RESPONSES)],
    ids=["ledger", "billing"],
)
def test_a_worker_does_as_the_document_says(web, key: str, tmp_path: Path, parts: list[str], checks: tuple[str, ...]) -> None:
    ensure_conforms(web, key, tmp_path, *parts, examples=2, checks=checks)
