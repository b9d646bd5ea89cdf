"""On a cluster only the coordinator has billing's tables: each call and command of billing says that it needs them."""

from pathlib import Path

import pytest
from django.core.management import find_commands, load_command_class

import billing
from billing.api.urls import urlpatterns


@pytest.mark.parametrize("pattern", urlpatterns, ids=lambda pattern: str(pattern.pattern))
def test_a_call_of_billing_needs_the_coordinator(pattern):
    assert pattern.callback.cls.needs_coordinator


@pytest.mark.parametrize("name", find_commands(str(Path(billing.__file__).parent / "management")))
def test_a_command_of_billing_needs_the_coordinator(name):
    assert load_command_class("billing", name).needs_coordinator
