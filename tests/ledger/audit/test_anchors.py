"""Anchor files are written completely or not at all, changed files are refused, and the audit finds deleted accounts."""

import hashlib
from datetime import UTC, datetime

import pytest

from ledger.audit.anchors import AnchorLine, AnchorMismatch, AnchorUnreadable, Seal, check_seal, read_anchor, write_anchor
from ledger.audit.auditing import audit
from tests.benchmarks.histories import store

AS_OF = datetime(2026, 1, 31, 12, tzinfo=UTC)
ACCOUNTS = [AnchorLine("ada", "credits", 17, "ab" * 32), AnchorLine("bob", "sms", 1, "cd" * 32)]
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
        # A number changed, a line removed, the seal's count changed, a second seal added.
        (lambda text: text.replace("17", "16"), AnchorMismatch),
        (lambda text: text.replace("bob\tsms\t1\t" + "cd" * 32 + "\n", ""), AnchorMismatch),
        (lambda text: text.replace("seal 2 18", "seal 2 19"), AnchorMismatch),
        (lambda text: text + "seal 0 0 00\n", AnchorMismatch),
        # No seal, cut off within a line, another version, an empty file, not UTF-8.
        (lambda text: text.rpartition("seal")[0], AnchorUnreadable),
        (lambda text: text[:80], AnchorUnreadable),
        (lambda text: text.replace("anchor 1", "anchor 2"), AnchorUnreadable),
        (lambda text: "", AnchorUnreadable),
        (lambda text: "\ud800".join(text), AnchorUnreadable),
    ],
)
def test_a_changed_or_incomplete_anchor_is_refused(tmp_path, change, error):
    path = tmp_path / "anchor"
    write_anchor(path, AS_OF, iter(ACCOUNTS))
    path.write_bytes(change(path.read_text()).encode(errors="surrogatepass"))
    with pytest.raises(error):
        check_seal(path)


def test_no_anchor_is_written_for_a_ledger_that_breaks_a_law(empty_ledger, history, tmp_path):
    store(empty_ledger, history.entries["bob"])  # a transfer from ada, who has no entry

    report = audit([empty_ledger], anchor_to_write=tmp_path / "anchor")

    assert report.totals == {"transfers": 1, "identity": 1}
    assert (report.anchor, list(tmp_path.iterdir())) == (None, [])


def test_the_anchor_finds_a_deleted_account_but_accepts_longer_and_new_accounts(empty_ledger, history, tmp_path):
    anchor = tmp_path / "anchor"
    ada, bob = history.entries["ada"], history.entries["bob"]
    store(empty_ledger, ada[:12])
    written = audit([empty_ledger], anchor_to_write=anchor)
    assert written.is_clean
    assert written.anchor is not None
    assert written.anchor["seal"] == check_seal(anchor)[1].digest

    store(empty_ledger, ada[12:] + bob)
    checked = audit([empty_ledger], anchor_to_check=anchor)
    assert checked.is_clean
    assert checked.anchor is not None
    assert checked.anchor["accounts"] == 1

    empty_ledger.execute("DELETE FROM ledger_entry WHERE holder_id = 'ada'")
    [finding] = [each for each in audit([empty_ledger], anchor_to_check=anchor).findings if each.law == "anchor"]
    assert finding == ("anchor", "ada", "credits", 12, "no such account", ada[11].digest.hex())
