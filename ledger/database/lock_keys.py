"""Turns the readable name of a lock into the number that PostgreSQL locks. Pure: knows neither Django nor the database.

Two processes exclude each other only if both use the same scheme (and with `fnv1-64-namespaced` the same namespace).
docs/reference/lock-keys.md lists for each scheme the services and languages that compute the same numbers.
"""

import hashlib
import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from struct import iter_unpack, unpack
from typing import Final

Numbering = Callable[[str], int]

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
GUAVA_DEFAULT_KEY: Final = bytes(range(16))


def sha256(name: str) -> int:
    """Return the first 8 bytes of SHA-256, big-endian, signed."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)


def siphash24_guava(name: str) -> int:
    """Return SipHash-2-4 under the public key 00 01 … 0f, signed. A customer who chooses ids can make two names collide.

    Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012; Guava's Hashing.sipHash24().
    """
    return signed(siphash24(GUAVA_DEFAULT_KEY, name.encode()), bits=64)


def fnv1_64(name: str) -> int:
    """Return FNV-1 (multiply, then xor), 64 bits, signed. A customer who chooses ids can make two names collide.

    Source: draft-eastlake-fnv; Go's hash/fnv New64.
    """
    return signed(fnv1(name.encode(), offset_basis=0xCBF29CE484222325, prime=0x100000001B3, bits=64), bits=64)


def sha512_mod63(name: str) -> int:
    """Return SHA-512, read as one big-endian integer, modulo 2^63: never negative."""
    return int.from_bytes(hashlib.sha512(name.encode()).digest(), "big") % 2**63


def djb2xor_32(name: str) -> int:
    """Return djb2 with xor over the UTF-16 code units, first to last, 0 .. 2^32-1. Unrelated names collide by chance.

    Source: Peachjar's hash of lock names: seed 5381, times 33, xor, in 32 bits; D. J. Bernstein's hash in its form with xor.
    """
    return _djb2xor(_utf16_units(name))


def string_hash_32(name: str) -> int:
    """Return djb2 with xor over the UTF-16 code units, last to first, 0 .. 2^32-1. Unrelated names collide by chance.

    Source: npm's string-hash 1.1.3.
    """
    return _djb2xor(reversed(_utf16_units(name)))


def fnv1_64_namespaced(name: str, *, namespace: int) -> int:
    """Return the namespace in the upper 32 bits, FNV-1 of the name in the lower 32. Unrelated names collide by chance.

    Args:
        namespace: a signed 32-bit number except 0: in River 0 means "no prefix", which is the scheme `fnv1-64`.

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
        namespace: for NAMESPACED a number, -2^31 .. 2^31-1 without 0; for every other scheme None: there the namespace is part
            of the name, which is hashed whole.

    Returns: a function to a signed 64-bit number; for djb2xor-32 and string-hash-32 to 0 .. 2^32-1.

    Raises:
        ValueError: the scheme does not exist, or it does not take this namespace.
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


def siphash24(key: bytes, data: bytes) -> int:
    """Return SipHash-2-4 of the bytes under a key of 16 bytes, 0 .. 2^64-1."""
    first, second = unpack("<2Q", key)
    v = first ^ 0x736F6D6570736575, second ^ 0x646F72616E646F6D, first ^ 0x6C7967656E657261, second ^ 0x7465646279746573
    for (word,) in iter_unpack("<Q", data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])):
        v = _siphash_rounds(2, *v[:3], v[3] ^ word)
        v = v[0] ^ word, *v[1:]
    a, b, c, d = _siphash_rounds(4, *v[:2], v[2] ^ 0xFF, v[3])
    return a ^ b ^ c ^ d


def _siphash_rounds(rounds: int, a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
    mask = 2**64 - 1
    for _ in range(rounds):
        a, c = (a + b) & mask, (c + d) & mask
        b, d = (b << 13 & mask | b >> 51) ^ a, (d << 16 & mask | d >> 48) ^ c
        a, c = ((a << 32 & mask | a >> 32) + d) & mask, (c + b) & mask
        b, d, c = (b << 17 & mask | b >> 47) ^ c, (d << 21 & mask | d >> 43) ^ a, c << 32 & mask | c >> 32
    return a, b, c, d


def fnv1(data: bytes, *, offset_basis: int, prime: int, bits: int) -> int:
    """Return FNV-1 of the bytes, 0 .. 2^bits-1."""
    number, mask = offset_basis, 2**bits - 1
    for byte in data:
        number = (number * prime) & mask ^ byte
    return number


def signed(number: int, *, bits: int) -> int:
    """Return the number that the same bits mean in two's complement."""
    return number - 2**bits if number >= 2 ** (bits - 1) else number


def _utf16_units(name: str) -> memoryview:
    """Return the numbers that JavaScript's charCodeAt gives; a character beyond 16 bits gives two."""
    return memoryview(name.encode(f"utf-16-{'le' if sys.byteorder == 'little' else 'be'}")).cast("H")


def _djb2xor(units: Iterable[int]) -> int:
    number = 5381
    for unit in units:
        number = (number * 33) & 0xFFFFFFFF ^ unit
    return number
