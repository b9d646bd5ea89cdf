"""Which node has a holder, by PostgreSQL's own hash; and what happens to a thread whose node cannot be reached."""

import random
from collections.abc import Iterator

import pytest
from django.db import DatabaseError, connection, connections

from ledger.cluster import nodes
from ledger.cluster.nodes import Node, Nodes, hash_of

SHARDS_OF_TWO_NODES = """
    SELECT shard, host, 5432, least
      FROM (VALUES (1, 'a', -2147483648), (2, 'b', -1073741824), (3, 'a', 0), (4, 'b', 1073741824)) AS s (shard, host, least)
"""


@pytest.fixture
def of_two_nodes(db: None, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    """Two nodes, each with every second of four shards."""
    monkeypatch.setattr(nodes, "SHARDS", SHARDS_OF_TWO_NODES)
    found = Nodes()
    found.refresh()
    return found


@pytest.fixture
def thread() -> Iterator[None]:
    """Gives this thread's connection its own settings back."""
    before = connection.settings_dict
    yield
    connections.close_all()
    connection.settings_dict = before


def texts() -> list[str]:
    """Texts of all lengths that a holder may have, also beyond ASCII."""
    chance = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789-_:äß€𝄞"
    return ["", "ada", *("".join(chance.choices(letters, k=length)) for length in range(1, 65) for _ in range(20))]


@pytest.mark.parametrize(
    ("text", "golden"),
    [("", -1477818771), ("ada", 1465976501), ("holder-0123456789", -965665820), ("Zoë", -333681825)],
)
def test_the_hash_of_a_text_is_pinned(text: str, golden: int) -> None:
    assert hash_of(text) == golden


def test_the_hash_is_the_one_of_the_server(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT t, hashtext(t) FROM unnest(%s::text[]) AS t", [texts()])
        assert {text: hash_of(text) for text in texts()} == dict(cursor.fetchall())


def test_a_holder_is_on_the_node_of_the_shard_whose_hashes_include_its_own(of_two_nodes: Nodes) -> None:
    for text in texts():
        quarter = (hash_of(text) + 2**31) // 2**30
        assert of_two_nodes.node_of(text) == Node("ab"[quarter % 2], 5432)


def test_no_node_is_known_before_the_shards_were_read() -> None:
    assert Nodes().node_of("ada") is None


def test_the_shards_are_read_again_after_a_while_and_not_before(of_two_nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [Nodes().is_due(), of_two_nodes.is_due(), of_two_nodes.is_due()] == [True, True, False]
    monkeypatch.setattr(of_two_nodes, "_refresh_at", 0.0)
    assert of_two_nodes.is_due()
    monkeypatch.setattr(nodes, "SHARDS", "SELECT 1, 'c', 5432, -2147483648")
    of_two_nodes.refresh()
    assert of_two_nodes.listed == {Node("c", 5432)}
    assert of_two_nodes.node_of("ada") == Node("c", 5432)


def test_the_places_that_were_read_remain_if_the_database_does_not_answer(
    of_two_nodes: Nodes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*arguments: object) -> None:
        raise DatabaseError("no answer")

    before = of_two_nodes.node_of("ada")
    monkeypatch.setattr(connection, "close", lambda: None)
    with connection.execute_wrapper(refuse):
        of_two_nodes.refresh()
    assert of_two_nodes.node_of("ada") == before is not None
    assert "The places of the shards were not read: no answer" in caplog.text


def test_a_thread_is_connected_to_the_node_itself(committed_db: None, thread: None) -> None:
    with connection.cursor():
        itself = Node("localhost", connection.connection.info.port)
    Nodes().connect_to(itself)
    assert connection.settings_dict["HOST"] == "localhost"
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        assert cursor.fetchone() == (connection.settings_dict["NAME"],)


@pytest.mark.django_db
def test_a_transaction_that_is_open_stays_on_its_connection() -> None:
    before = connection.connection, connection.settings_dict
    Nodes().connect_to(Node("127.0.0.1", 1))
    assert (connection.connection, connection.settings_dict) == before


def test_the_coordinator_executes_what_is_for_a_node_that_cannot_be_reached(
    committed_db: None, thread: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured = connections.settings["default"]
    nobody = Node("127.0.0.1", 1)
    known = Nodes()
    known.connect_to(nobody)
    assert connection.settings_dict is configured
    assert "Cannot connect to the node 127.0.0.1:1" in caplog.text
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")

    caplog.clear()
    known.connect_to(nobody)
    assert (connection.connection is not None, caplog.text) == (True, ""), "it is not tried again at once"
    known._try_again_at[nobody] = 0.0
    known.connect_to(nobody)
    assert "Cannot connect" in caplog.text


def test_a_thread_that_a_node_sent_back_has_the_places_read_again(committed_db: None, thread: None) -> None:
    configured = connections.settings["default"]
    known = Nodes()
    with connection.cursor():
        itself = Node("localhost", connection.connection.info.port)
    connection.close()
    assert known.is_due()
    known.connect_to(itself)
    known.connect_to(itself)
    assert not known.is_due(), "it is connected there"
    nodes.return_to_coordinator()
    assert (connection.settings_dict is configured, connection.connection) == (True, None)
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    known.connect_to(itself)
    assert known.is_due()
