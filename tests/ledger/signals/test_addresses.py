"""Nothing is sent to an address that is not public, however it is written."""

import pytest

from ledger.signals.addresses import may_be_sent_to, networks, url_fault

PRIVATE = [
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.7", "203.0.113.7", "224.0.0.1", "240.0.0.1",
    "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12:3456::1", "ff02::1", "2001:db8::1",
    "192.0.0.192", "fec0::1", "3fff::1", "::127.0.0.1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:a00:1::1",
]  # fmt: skip
PUBLIC = ["1.1.1.1", "93.184.216.34", "172.32.0.1", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert not may_be_sent_to(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_taken(address: str) -> None:
    assert may_be_sent_to(address)


def test_only_what_the_settings_allow_is_taken_beside() -> None:
    allowed = networks(["10.1.0.0/16", "fd00::/8"])
    assert may_be_sent_to("10.1.2.3", allowed)
    assert may_be_sent_to("::ffff:10.1.2.3", allowed)
    assert may_be_sent_to("fd00::7", allowed)
    assert not may_be_sent_to("10.2.0.1", allowed)
    assert not may_be_sent_to("127.0.0.1", allowed)


@pytest.mark.parametrize(
    ("url", "plain", "secure"),
    [
        ("https://shop.example/hooks?a=1", True, True),
        ("https://shop.example:8443", True, True),
        ("https://[2606:4700::1]/x", True, True),
        ("http://shop.example/", True, False),
        ("ftp://shop.example/", False, False),
        ("https:///x", False, False),
        ("shop.example", False, False),
        ("https://user@shop.example/", False, False),
        ("https://user:pw@shop.example/", False, False),
        ("https://shop.example/#a", False, False),
        ("https://shop.example:99999/", False, False),
        ("https://shop.example:0/", False, False),
        ("https://[::1/", False, False),
        ("https://shöp.example/", False, False),
        ("https://shop.example/a b", False, False),
        ("https://shop.example\\@evil.example/", False, False),
        ("https://shop.example/\r\nX: y", False, False),
    ],
)
def test_a_url_is_one_to_which_a_request_can_be_sent(url: str, plain: bool, secure: bool) -> None:
    assert (not url_fault(url, plain_http=True), not url_fault(url, plain_http=False)) == (plain, secure)
