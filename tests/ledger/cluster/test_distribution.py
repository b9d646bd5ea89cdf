"""A ledger that is to be distributed over nodes is refused on a server that is no cluster. tests/distributed has clusters."""

import pytest
from django.db import connection

from ledger.cluster.checks import verify_cluster
from ledger.cluster.distribution import distribute
from ledger.database import checks
from ledger.database.cluster import NoCluster
from ledger.errors import UnsafeDatabase

pytestmark = pytest.mark.one_node("the database is no cluster's")


def test_a_server_without_the_extension_is_not_distributed(db: None) -> None:
    with pytest.raises(NoCluster, match="no extension citus"):
        distribute(connection)


def test_the_start_checks_refuse_it(db: None) -> None:
    with pytest.raises(UnsafeDatabase, match="the ledger is not distributed"):
        verify_cluster(connection)


def test_control_they_pass_without_the_setting(db: None) -> None:
    checks.verify_cluster(connection)
