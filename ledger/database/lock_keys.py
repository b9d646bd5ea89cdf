"""How the readable name of a lock becomes the number that PostgreSQL locks. Pure; knows neither Django nor the database.

Every process that is to exclude another must use the same scheme, and for one scheme the same namespace. docs/LOCK_KEYS.md says
which service in which language each scheme agrees with.
"""

import hashlib
import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import Final

from siphashc import siphash

Numbering = Callable[[str], int]

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
GUAVA_DEFAULT_KEY: Final = bytes(range(16))


def sha256(name: str) -> int:
    """The first 8 bytes of SHA-256, big-endian, signed."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)


def siphash24_guava(name: str) -> int:
    """SipHash-2-4 under the public key 00 01 … 0f, signed; a customer who chooses ids can make them collide.

    Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012; Guava's Hashing.sipHash24().
    """
    return signed(siphash(GUAVA_DEFAULT_KEY, name.encode()), bits=64)


def fnv1_64(name: str) -> int:
    """FNV-1 (multiply, then xor), 64 bits, signed; a customer who chooses ids can make them collide.

    Source: draft-eastlake-fnv; Go's hash/fnv New64.
    """
    return signed(fnv1(name.encode(), offset_basis=0xCBF29CE484222325, prime=0x100000001B3, bits=64), bits=64)


def sha512_mod63(name: str) -> int:
    """SHA-512, read as one big-endian integer, modulo 2^63: never negative."""
    return int.from_bytes(hashlib.sha512(name.encode()).digest(), "big") % 2**63


def djb2xor_32(name: str) -> int:
    """djb2 with xor over the UTF-16 code units from the first to the last, 0 .. 2^32-1; unrelated names do collide.

    Source: Peachjar's hash of lock names: seed 5381, times 33, xor, in 32 bits; D. J. Bernstein's hash in its form with xor.
    """
    return _djb2xor(_utf16_units(name))


def string_hash_32(name: str) -> int:
    """djb2 with xor over the UTF-16 code units from the last to the first, 0 .. 2^32-1; unrelated names do collide.

    Source: npm's string-hash 1.1.3.
    """
    return _djb2xor(reversed(_utf16_units(name)))


def fnv1_64_namespaced(name: str, *, namespace: int) -> int:
    """The namespace in the upper 32 bits and FNV-1 of the name, 32 bits, in the lower; unrelated names do collide.

    Args:
        namespace: a signed 32-bit number; not 0, by which River means "no prefix", its 64-bit form.

    Source: River's rivershared/util/hashutil, AdvisoryLockHash.Key.
    """
    lower = fnv1(name.encode(), offset_basis=0x811C9DC5, prime=0x01000193, bits=32)
    return signed((namespace & 0xFFFFFFFF) << 32 | lower, bits=64)


SCHEMES: Final[dict[str, Numbering]] = {
    "sha256": sha256,
    "siphash24-guava": siphash24_guava,
    "fnv1-64": fnv1_64,
    "sha512-mod63": sha512_mod63,
    "djb2xor-32": djb2xor_32,
    "string-hash-32": string_hash_32,
}
NAMESPACED: Final = "fnv1-64-namespaced"


@cache
def numbering(scheme: str, namespace: str | int | None = None) -> Numbering:
    """Return the function from a lock's name to its number, or raise before any lock is taken.

    Args:
        scheme: one of SCHEMES, or NAMESPACED.
        namespace: for NAMESPACED a number, -2^31 .. 2^31-1 without 0. The others take none: they hash what the name has.

    Returns: a function to a signed 64-bit number; for djb2xor-32 and string-hash-32 to 0 .. 2^32-1.

    Raises:
        ValueError: there is no such scheme, or the namespace is outside what the scheme takes.
    """
    if scheme == NAMESPACED:
        number = _namespace_number(namespace)
        return lambda name: fnv1_64_namespaced(name, namespace=number)
    if scheme not in SCHEMES:
        known = ", ".join([*SCHEMES, NAMESPACED])
        raise ValueError(f"unknown lock key scheme {scheme!r}; known are: {known}")
    if namespace is not None:
        raise ValueError(f"the lock key scheme {scheme} takes no namespace; it hashes the one that the name begins with")
    return SCHEMES[scheme]


def _namespace_number(namespace: str | int | None) -> int:
    digits = str(namespace)
    if re.fullmatch(r"-?[0-9]{1,10}", digits, re.ASCII) is None or not INT32_MIN <= int(digits) <= INT32_MAX or int(digits) == 0:
        raise ValueError(
            f"lock namespace {namespace!r} is not a number from {INT32_MIN} to {INT32_MAX} without 0, "
            f"which {NAMESPACED} needs; for no namespace use the scheme fnv1-64"
        )
    return int(digits)


def fnv1(data: bytes, *, offset_basis: int, prime: int, bits: int) -> int:
    """FNV-1 of the bytes, 0 .. 2^bits-1."""
    number, mask = offset_basis, 2**bits - 1
    for byte in data:
        number = (number * prime) & mask ^ byte
    return number


def signed(number: int, *, bits: int) -> int:
    """The same bits, read as two's complement."""
    return number - 2**bits if number >= 2 ** (bits - 1) else number


def _utf16_units(name: str) -> memoryview:
    """The numbers that JavaScript's charCodeAt gives; a character beyond 16 bits is two of them."""
    return memoryview(name.encode(f"utf-16-{'le' if sys.byteorder == 'little' else 'be'}")).cast("H")


def _djb2xor(units: Iterable[int]) -> int:
    number = 5381
    for unit in units:
        number = (number * 33) & 0xFFFFFFFF ^ unit
    return number
