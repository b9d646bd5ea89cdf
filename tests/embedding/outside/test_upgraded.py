"""Programs of others are upgraded from the built files of an earlier release to today's, while they are called."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.deployment.servers import manage, started_version
from tests.deployment.traffic import Traffic, running
from tests.embedding.installations import start_project
from tests.embedding.outside.postgres import django_settings, project_database, service_environment
from tests.embedding.outside.processes import ledger_web, prepare_ledger, programs, service
from tests.embedding.outside.projects import CLEAN, assert_orders_are_whole, order_first, send_order, start_shop
from tests.embedding.outside.releases import EARLIER, Files, unpack_earlier
from tests.embedding.outside.services import assert_answers_are_charged, grant_all, send_question
from tests.embedding.test_testing import EMPTIED, ROLLED_BACK

pytestmark = pytest.mark.slow

CLIENTS = 4
CALLS = 60
"""How many calls are answered between two steps."""


@pytest.mark.parametrize(
    ("version", "pooler"),
    [
        (18, ""),
        (15, ""),
        (16, "PgBouncer"),
        (17, "PgBouncer that keeps prepared statements"),
        (18, "PgBouncer that keeps prepared statements"),
    ],
)
def test_a_django_project_is_upgraded_while_it_is_called(
    version: int, pooler: str, earlier_python: Path, python: Path, tmp_path: Path
) -> None:
    with project_database(version) as database, django_settings(database, pooler=pooler) as settings, programs() as started:
        earlier = start_shop(earlier_python, tmp_path / "project", settings, prepares="keeps" in pooler)
        today = earlier.on(python)
        webs = [earlier.web().start() for _ in range(2)]
        started += [*webs, worker := earlier.worker().start()]
        first = order_first(webs[0].url)
        traffic = Traffic([web.url for web in webs], send_order)
        with running(traffic.send, CLIENTS):
            traffic.go_on(CALLS)
            assert "(ledger.W008)" in today.project.manage("check", "--deploy", succeeds=False)
            today.project.manage("migrate")
            traffic.go_on(CALLS)
            started.append(new_worker := today.worker().start())
            worker.stop()
            for web in webs:
                traffic.take_out(web.url)
                web.stop()
                started.append(new := today.web().start())
                traffic.put_in(new.url)
                traffic.go_on(CALLS)
        assert traffic.failures == []
        # Asked again, what the earlier release has answered has the same answer, and is charged no second time.
        assert order_first(traffic.urls[0]) == first
        assert_orders_are_whole(today, traffic.count)
        assert "ledger.W008" not in today.project.manage("check", "--deploy")
        new_worker.stop()


@pytest.mark.parametrize(("version", "pooler"), [(18, ""), (15, "PgBouncer")])
def test_services_are_upgraded_with_the_ledger_that_they_call(
    version: int, pooler: str, files: Files, earlier_files: Files, python: Path, earlier_python: Path, tmp_path: Path
) -> None:
    """Each service with the ledger's server that it calls, one after the other."""
    kinds = ["fastapi", *(["node"] if files.has_npm_package else [])]
    earlier_code = unpack_earlier(EARLIER[0], tmp_path / "earlier")
    code = files.unpack_image_archive(tmp_path / "today")
    with ExitStack() as stack:
        server = stack.enter_context(started_version(version))
        # A session that PgBouncer keeps has the settings with which it began.
        prepare_ledger(earlier_code, server)
        environment = stack.enter_context(service_environment(server, pooler=pooler))
        started = stack.enter_context(programs())
        pairs = []
        for number, kind in enumerate(kinds * 2 if len(kinds) == 1 else kinds):
            started.append(web := ledger_web(earlier_code, environment).start())
            folder = tmp_path / f"earlier-{number}"
            of_kind = service(kind, folder, files=earlier_files, python=earlier_python, ledger_url=web.url)
            started.append(of_kind.start())
            pairs.append((kind, web, of_kind))
        grant_all(pairs[0][1].url)
        traffic = Traffic([of_kind.url for _, _, of_kind in pairs], send_question)
        with running(traffic.send, CLIENTS):
            traffic.go_on(CALLS)
            prepare_ledger(code, server)
            traffic.go_on(CALLS)
            for number, (kind, web, of_kind) in enumerate(pairs):
                traffic.take_out(of_kind.url)
                of_kind.stop()
                web.stop()
                started.append(web := ledger_web(code, environment).start())
                folder = tmp_path / f"today-{number}"
                started.append(new := service(kind, folder, files=files, python=python, ledger_url=web.url).start())
                traffic.put_in(new.url)
                traffic.go_on(CALLS)
        assert traffic.failures == []
        # Asked again, the first question has its answer, and is charged no second time.
        assert send_question(traffic.urls[0], 0) == ""
        assert_answers_are_charged(web.url, traffic.count)
        assert CLEAN in manage(server, "audit_ledger")


@pytest.mark.parametrize("version", [18, 15])
def test_a_test_database_that_the_earlier_release_made_is_kept(
    version: int, earlier_python: Path, python: Path, tmp_path: Path
) -> None:
    with project_database(version) as database, django_settings(database) as settings:
        project = start_project(earlier_python, tmp_path / "project", settings, ["ledger"])
        (project.folder / "tests.py").write_text(ROLLED_BACK + EMPTIED)
        assert "Ran 4 tests" in project.manage("test", "--keepdb")
        assert "Ran 4 tests" in project.on(python).manage("test", "--keepdb")
