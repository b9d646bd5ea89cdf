"""A spend runs through as few files as the page on the architecture says."""

import pytest

from tests import reading
from tests.deployment.test_reading import documented


@pytest.mark.slow
def test_a_spend_over_http_runs_through_few_files() -> None:
    whats = ("files that a spend over HTTP runs through", "the same without those that only count and log")
    counted = dict(zip(whats, reading.spend_files(), strict=True))
    assert {what: number for what, number in counted.items() if number > (documented()[what][0] or 0)} == {}
