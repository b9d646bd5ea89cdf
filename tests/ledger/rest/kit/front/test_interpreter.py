"""How long a computing thread keeps the interpreter."""

import sys

import pytest

from ledger.rest.kit.front.interpreter import SHORT_SWITCH_INTERVAL_S, short_switch_interval


def test_the_short_switch_interval_lasts_until_the_last_of_overlapping_blocks_ends() -> None:
    usual = sys.getswitchinterval()
    first, second = short_switch_interval(), short_switch_interval()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.getswitchinterval() == pytest.approx(SHORT_SWITCH_INTERVAL_S)
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == usual
