"""To which addresses signals may be sent, mail addresses among them. Pure.

`sending` resolves a name, and connects to the address that passes here.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

NAT64: Final = IPv6Network("64:ff9b::/96")
NOT_GLOBAL: Final[tuple[Network, ...]] = (IPv4Network("192.0.0.0/24"), IPv6Network("fec0::/10"), IPv6Network("3fff::/20"))
"""Not public, although some versions of Python call them so: protocol assignments, where clouds have metadata services;
former site-local addresses; documentation. Source: IANA's registries of special-purpose addresses, RFC 3879."""
MAX_URL_CHARACTERS: Final = 2000
MAILTO: Final = "mailto:"


def mail_address(url: str) -> str:
    """Return the address of a `mailto:` URL; empty if it is another URL."""
    return url.removeprefix(MAILTO) if url.startswith(MAILTO) else ""


def url_fault(url: str, *, plain_http: bool, mail: bool = False) -> str:
    """Return what is wrong with a webhook's URL, as a sentence; empty if nothing is.

    Args:
        mail: whether the deployment sends mail.
    """
    if url.startswith(MAILTO):
        return _mail_fault(mail_address(url), mail=mail)
    if not url.isascii() or not url.isprintable() or any(character in url for character in ' "<>\\^`{|}'):
        return "This must be a URL of printable ASCII characters."
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "This must be a URL."
    schemes = ("https", "http") if plain_http else ("https",)
    if parts.scheme not in schemes or not parts.hostname:
        return f"This must be a URL that begins with {' or '.join(f'{each}://' for each in schemes)}."
    if parts.username is not None or parts.password is not None or parts.fragment or "#" in url:
        return "This must have neither a user nor a fragment."
    if port == 0:
        return "This must have a port of 1 to 65535, or none."
    return ""


def _mail_fault(address: str, *, mail: bool) -> str:
    if not mail:
        return "This deployment sends no mail: LEDGER_SIGNAL_MAIL_FROM is not set."
    try:
        validate_email(address)
    except ValidationError:
        return "This must be mailto: and one mail address."
    return ""


def networks(texts: Iterable[str]) -> list[Network]:
    """Return networks that are written as 10.1.0.0/16.

    Raises:
        ValueError: a text is not a network.
    """
    return [ip_network(text) for text in texts]


def may_be_sent_to(text: str, allowed: Iterable[Network] = ()) -> bool:
    """Return whether signals may be sent to this address: a public one, or one of a network that the settings allow.

    An IPv6 address that stands for an IPv4 address is judged as that one.
    """
    address = _meant_address(ip_address(text.partition("%")[0]))
    if any(address.version == network.version and address in network for network in allowed):
        return True
    if any(address.version == network.version and address in network for network in NOT_GLOBAL):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _meant_address(address: Address) -> Address:
    if isinstance(address, IPv4Address):
        return address
    inside = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
    if inside is None and address in NAT64:
        inside = IPv4Address(int(address) & 0xFFFFFFFF)
    return address if inside is None else inside
