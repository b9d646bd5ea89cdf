"""The settings of the ledger: each has a default, and a name or a value that cannot be is reported."""

from typing import Any

import pytest
from django.apps import apps
from django.core.checks import Error
from pytest_django import Settings

from ledger import conf
from ledger.database import system_checks


def test_without_settings_the_defaults_hold(settings: Settings) -> None:
    del settings.LEDGER
    assert {setting.name: setting.value for setting in conf.SETTINGS} == {
        "LOCK_KEY_SCHEME": "sha256",
        "LOCK_NAMESPACE": "",
        "LOCK_NAMES": "",
        "PREPARE_STATEMENTS": True,
        "REQUESTS_PER_TRANSACTION": 32,
        "DISTRIBUTED": False,
        "SHARDS": 32,
        "REFUND_TO_EXPIRED_LOT": "new-lot",
        "REFUND_LOT_DAYS": 30,
        "DOCUMENT_FONTS": [],
        "KEY_REQUESTS_PER_SECOND": 0,
        "KEY_CONCURRENT_REQUESTS": 1024,
        "TRUSTED_PROXIES": 0,
        "SIGNAL_ALLOWED_NETWORKS": [],
        "SIGNAL_PLAIN_HTTP": False,
        "SIGNAL_MAIL_FROM": "",
        "SIGNAL_TIMEOUT_SECONDS": 10,
        "SIGNAL_DISABLED_AFTER_DAYS": 5,
        "SIGNAL_KEPT_DAYS": 30,
        "SECOND_OPERATOR_ABOVE": [],
        "VIES_URL": "",
        "TEST_CLOCKS": False,
        "CUSTOMER_PAGE_URL": "",
        "CUSTOMER_PAGE_SALT": "",
        "CUSTOMER_PAGE_FRAMED_BY": [],
    }
    assert system_checks.check_settings() == []


def test_one_setting_leaves_the_others_at_their_defaults(settings: Settings) -> None:
    settings.LEDGER = {"SHARDS": 7}
    assert (conf.SHARDS.value, conf.REFUND_LOT_DAYS.value) == (7, 30)
    assert system_checks.check_settings() == []


@pytest.mark.parametrize(
    ("database", "prepares"),
    [
        ({}, True),
        ({"DISABLE_SERVER_SIDE_CURSORS": True}, False),
        ({"OPTIONS": {"prepare_threshold": None}}, False),
        ({"OPTIONS": {"prepare_threshold": 5}}, True),
    ],
)
def test_statements_are_prepared_unless_the_database_is_said_to_be_behind_a_pooler(
    database: dict[str, Any], prepares: bool, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conf.settings, "DATABASES", {"default": database})
    settings.LEDGER = {}
    assert conf.PREPARE_STATEMENTS.value is prepares
    settings.LEDGER = {"PREPARE_STATEMENTS": not prepares}
    assert conf.PREPARE_STATEMENTS.value is not prepares


def test_each_default_is_a_value_that_the_check_accepts() -> None:
    assert {
        setting.name: setting.complaint(setting.default) for setting in conf.SETTINGS if setting.complaint(setting.default)
    } == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"SHARD": 7}, "settings.LEDGER has no 'SHARD'; known are: LOCK_KEY_SCHEME, LOCK_NAMESPACE, "),
        ({"SHARDS": "7"}, "settings.LEDGER['SHARDS'] must be a whole number, not '7'."),
        ({"SHARDS": True}, "settings.LEDGER['SHARDS'] must be a whole number, not True."),
        ({"SHARDS": 0}, "settings.LEDGER['SHARDS'] must be 1 or more, not 0."),
        ({"TRUSTED_PROXIES": -1}, "settings.LEDGER['TRUSTED_PROXIES'] must be 0 or more, not -1."),
        ({"PREPARE_STATEMENTS": 1}, "settings.LEDGER['PREPARE_STATEMENTS'] must be True or False, not 1."),
        ({"LOCK_NAMES": None}, "settings.LEDGER['LOCK_NAMES'] must be a string, not None."),
        ({"DOCUMENT_FONTS": "fonts"}, "settings.LEDGER['DOCUMENT_FONTS'] must be a list of strings, not 'fonts'."),
        ({"DOCUMENT_FONTS": [1]}, "settings.LEDGER['DOCUMENT_FONTS'] must be a list of strings, not [1]."),
        (
            {"REFUND_TO_EXPIRED_LOT": "back"},
            "settings.LEDGER['REFUND_TO_EXPIRED_LOT'] must be one of 'new-lot', 'gone', not 'back'.",
        ),
        ("SHARDS=7", "settings.LEDGER must be a dict, not 'SHARDS=7'."),
    ],
)
def test_an_unknown_name_a_wrong_type_and_a_wrong_value_are_reported_by_name(
    given: Any, message: str, settings: Settings
) -> None:
    settings.LEDGER = given
    (found,) = system_checks.check_settings()
    assert isinstance(found, Error)
    assert (found.id, found.msg.startswith(message)) == ("ledger.E004", True), found.msg


def test_a_setting_of_an_application_that_is_left_out_is_reported(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.LEDGER = {"SIGNAL_MAIL_FROM": "ledger@shop.example"}
    assert system_checks.check_settings() == []
    monkeypatch.setattr(conf.apps, "is_installed", lambda name: name != "ledger.signals")
    (found,) = system_checks.check_settings()
    assert (found.id, found.msg) == (
        "ledger.E004",
        "settings.LEDGER['SIGNAL_MAIL_FROM'] needs 'ledger.signals' in INSTALLED_APPS.",
    )
    settings.LEDGER = {"SIGNAL_MAIL_FROM": conf.SIGNAL_MAIL_FROM.default}
    assert system_checks.check_settings() == []


def test_the_application_of_each_setting_is_one_of_ours() -> None:
    given = {setting.application for setting in conf.SETTINGS}
    assert given - {""} <= {config.name for config in apps.get_app_configs()}
    assert {setting.name for setting in conf.SETTINGS if setting.name.startswith("SIGNAL_")} == {
        setting.name for setting in conf.SETTINGS if setting.application == "ledger.signals"
    }


def test_every_wrong_setting_is_reported(settings: Settings) -> None:
    settings.LEDGER = {"SHARD": 7, "SHARDS": 0, "LOCK_KEY_SCHEME": "md5"}
    assert [found.id for found in system_checks.check_settings()] == ["ledger.E004", "ledger.E004"]
