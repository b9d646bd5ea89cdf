"""Programs of others go on with a copy of their database, which logical replication made, often on a newer PostgreSQL."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.deployment.servers import manage, started_version
from tests.deployment.traffic import Traffic, running
from tests.embedding.outside.postgres import (
    Database,
    django_settings,
    following_copy,
    project_database,
    service_environment,
)
from tests.embedding.outside.processes import ledger_web, prepare_ledger, programs, service
from tests.embedding.outside.projects import CLEAN, assert_orders_are_whole, order_first, send_order, start_shop
from tests.embedding.outside.releases import Files
from tests.embedding.outside.services import assert_answers_are_charged, grant_all, send_question

pytestmark = pytest.mark.slow

CLIENTS = 4
CALLS = 60
"""How many calls are answered between two steps."""


@pytest.mark.parametrize(
    ("version", "to_version", "pooler"),
    [
        (15, 18, ""),
        (18, 15, "PgBouncer"),
        (16, 17, "PgBouncer that keeps prepared statements"),
        (17, 16, ""),
        (15, 15, "PgBouncer that keeps prepared statements"),
    ],
)
def test_a_django_project_goes_on_with_a_copy(version: int, to_version: int, pooler: str, python: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        source = stack.enter_context(project_database(version, wal_level="logical"))
        copy = stack.enter_context(project_database(to_version))
        started = stack.enter_context(programs())
        of_source = stack.enter_context(django_settings(source, pooler=pooler))
        shop = start_shop(python, tmp_path / "project", of_source, prepares="keeps" in pooler)
        started += [web := shop.web().start(), worker := shop.worker().start()]
        first = order_first(web.url)
        traffic = Traffic([web.url], send_order)
        with following_copy(source, copy):
            with running(traffic.send, CLIENTS):
                traffic.go_on(CALLS)
            worker.stop()
            web.stop()
        shop.use_database(stack.enter_context(django_settings(copy, pooler=pooler)))
        assert CLEAN in shop.project.manage("audit_ledger")
        assert "No migrations to apply" in shop.project.manage("migrate")
        web.start()
        worker.start()
        assert order_first(web.url) == first
        with running(traffic.send, CLIENTS):
            traffic.go_on(CALLS)
        assert traffic.failures == []
        assert_orders_are_whole(shop, traffic.count)
        worker.stop()


@pytest.mark.parametrize(("version", "to_version", "pooler"), [(18, 18, ""), (15, 18, "PgBouncer")])
def test_services_go_on_when_their_ledger_moves_to_a_copy(
    version: int, to_version: int, pooler: str, files: Files, python: Path, tmp_path: Path
) -> None:
    """They stay as they are: the ledger that they call starts again at its address, with another database."""
    code = files.unpack_image_archive(tmp_path / "today")
    with ExitStack() as stack:
        server = stack.enter_context(started_version(version, wal_level="logical"))
        to_server = stack.enter_context(started_version(to_version))
        started = stack.enter_context(programs())
        prepare_ledger(code, server)
        started.append(web := ledger_web(code, stack.enter_context(service_environment(server, pooler=pooler))).start())
        grant_all(web.url)
        services = [
            service(kind, tmp_path / kind, files=files, python=python, ledger_url=web.url).start()
            for kind in ("fastapi", *(["node"] if files.has_npm_package else []))
        ]
        started += services
        traffic = Traffic([each.url for each in services], send_question)
        with following_copy(Database(server, "ledger"), Database(to_server, "ledger")):
            with running(traffic.send, CLIENTS):
                traffic.go_on(CALLS)
            web.stop()
        prepare_ledger(code, to_server)
        assert CLEAN in manage(to_server, "audit_ledger")
        web.environment |= stack.enter_context(service_environment(to_server, pooler=pooler))
        web.start()
        # Asked again, the first question has its answer, and is charged no second time.
        assert {send_question(each.url, 0) for each in services} == {""}
        with running(traffic.send, CLIENTS):
            traffic.go_on(CALLS)
        assert traffic.failures == []
        assert_answers_are_charged(web.url, traffic.count)
        assert CLEAN in manage(to_server, "audit_ledger")
