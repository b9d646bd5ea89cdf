"""Anchor files: written whole or not at all, read only when they are what was sealed, and no account slips past them."""

import hashlib
from datetime import UTC, datetime

import pytest

from ledger.audit import Anchor, AnchorMismatch, AnchorUnreadable, audit, read_anchor, write_anchor
from ledger.audit.anchors import Seal, check_seal
from tests.benchmarks.histories import store
from tests.ledger.test_audit import empty_ledger, history  # noqa: F401

AS_OF = datetime(2026, 1, 31, 12, tzinfo=UTC)
ACCOUNTS = [Anchor("ada", "credits", 17, "ab" * 32), Anchor("bob", "sms", 1, "cd" * 32)]
TEXT = (
    "credit-ledger-anchor 1 2026-01-31T12:00:00.000000Z\n"
    "ada\tcredits\t17\t" + "ab" * 32 + "\n"
    "bob\tsms\t1\t" + "cd" * 32 + "\n"
)  # fmt: skip


def test_an_anchor_is_text_whose_last_line_seals_the_others(tmp_path):
    path = tmp_path / "anchor"
    seal = write_anchor(path, AS_OF, iter(ACCOUNTS))
    digest = hashlib.sha256(TEXT.encode()).hexdigest()
    assert digest == "d872f8058b8203f598bc36d8ccea54de2bdaa6f4ab28151d1c80180499ef77ff"
    assert seal == Seal(2, 18, digest)
    assert path.read_text() == TEXT + f"seal 2 18 {digest}\n"
    assert check_seal(path) == (AS_OF, seal)
    assert list(read_anchor(path)) == ACCOUNTS
    assert [each.name for each in tmp_path.iterdir()] == ["anchor"]


def test_an_anchor_is_never_written_over(tmp_path):
    path = tmp_path / "anchor"
    path.write_text("an older one")
    with pytest.raises(FileExistsError):
        write_anchor(path, AS_OF, iter(ACCOUNTS))
    assert path.read_text() == "an older one"
    assert [each.name for each in tmp_path.iterdir()] == ["anchor"]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda text: text.replace("17", "16"), AnchorMismatch),
        (lambda text: text.replace("bob\tsms\t1\t" + "cd" * 32 + "\n", ""), AnchorMismatch),
        (lambda text: text.replace("seal 2 18", "seal 2 19"), AnchorMismatch),
        (lambda text: text + "seal 0 0 00\n", AnchorMismatch),
        (lambda text: text.rpartition("seal")[0], AnchorUnreadable),
        (lambda text: text[:80], AnchorUnreadable),
        (lambda text: text.replace("anchor 1", "anchor 2"), AnchorUnreadable),
        (lambda text: "", AnchorUnreadable),
        (lambda text: "\ud800".join(text), AnchorUnreadable),
    ],
)
def test_a_file_that_is_not_what_was_sealed_is_refused(tmp_path, change, error):
    path = tmp_path / "anchor"
    write_anchor(path, AS_OF, iter(ACCOUNTS))
    path.write_bytes(change(path.read_text()).encode(errors="surrogatepass"))
    with pytest.raises(error):
        check_seal(path)


def test_a_vanished_account_is_found_and_a_longer_or_new_one_is_not(empty_ledger, history, tmp_path):  # noqa: F811
    store(empty_ledger, history.entries["ada"][:12] + history.entries["bob"])
    written = audit([empty_ledger], anchor_to_write=tmp_path / "anchor", holder_id=None)
    # Bob's arrival without ada's departure breaks the identity: nothing is vouched for.
    assert (written.is_clean, written.anchor, list(tmp_path.iterdir())) == (False, None, [])
    empty_ledger.execute("DELETE FROM ledger_entry WHERE holder_id = 'bob'")
    written = audit([empty_ledger], anchor_to_write=tmp_path / "anchor")
    assert written.is_clean
    assert written.anchor is not None
    assert written.anchor["seal"] == check_seal(tmp_path / "anchor")[1].digest

    store(empty_ledger, history.entries["ada"][12:] + history.entries["bob"])
    checked = audit([empty_ledger], anchor_to_check=tmp_path / "anchor")
    assert checked.is_clean
    assert checked.anchor is not None
    assert checked.anchor["accounts"] == 1

    empty_ledger.execute("DELETE FROM ledger_entry WHERE holder_id = 'ada'")
    [finding] = [each for each in audit([empty_ledger], anchor_to_check=tmp_path / "anchor").findings if each.law == "anchor"]
    assert finding[1:] == ("ada", "credits", 12, "no such account", history.entries["ada"][11].digest.hex())
