"""The start checks refuse each setting that is not safe on a node of a cluster. tests/distributed asks real nodes."""

import pytest

from ledger.cluster.checks import BOUND, NEEDED, _verify_settings
from ledger.errors import UnsafeDatabase

SAFE = {name: values[0] for name, (values, _) in NEEDED.items()} | dict.fromkeys(BOUND, "2s")


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize("value", ["anything else", None], ids=["another value", "no such setting"])
def test_a_setting_that_is_not_safe_is_refused_with_its_node(name: str, value: str | None) -> None:
    with pytest.raises(UnsafeDatabase, match=f"{name} = {value} on worker1:5432"):
        _verify_settings("worker1:5432", SAFE | {name: value})


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, (values, _) in NEEDED.items() for value in values])
def test_control_each_safe_value_is_accepted(name: str, value: str) -> None:
    _verify_settings("worker1:5432", SAFE | {name: value})


@pytest.mark.parametrize("name", BOUND)
def test_a_node_where_the_role_is_not_bound_is_refused(name: str) -> None:
    with pytest.raises(UnsafeDatabase, match=f"{name} = 0 on worker1:5432: run `manage.py prepare_database`"):
        _verify_settings("worker1:5432", SAFE | {name: "0"})
