"""These tests run on a Citus cluster, and are skipped without LEDGER_TEST_CITUS."""

from pathlib import Path

import pytest

from tests import nodes
from tests.distributed.cluster import Cluster, StartedCluster
from tests.settings import CITUS

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that need a cluster if there is none."""
    if not CITUS:
        for item in items:
            if item.path.is_relative_to(HERE):
                item.add_marker(
                    pytest.mark.skip(reason="needs a Citus cluster: set LEDGER_TEST_CITUS, see docs/how-to/operations/cluster.md")
                )


@pytest.fixture
def cluster(django_db_setup: None) -> Cluster:
    """The cluster that the whole run uses."""
    assert nodes.cluster
    return nodes.cluster


@pytest.fixture
def own_cluster(cluster: Cluster) -> StartedCluster:
    """The same, for a test that stops nodes."""
    if not isinstance(cluster, StartedCluster):
        pytest.skip("stops nodes, which only a cluster of the tests' own allows")
    return cluster
