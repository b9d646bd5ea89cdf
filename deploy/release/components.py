"""The bill of materials of a release, as CycloneDX: what the pinned requirements install in the image, and what needs what."""

import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NAMESPACE = uuid.UUID("6f3b6a40-5d0f-5b6e-9c0e-6e7a1f2c9d11")
PIN = re.compile(r"^(?P<requirement>[^\s#][^\\\n]*?) \\\n(?P<more>(?:    .*\n?)+)", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
NAMED = re.compile(r"^    #(?: via|  ) +-r ", re.MULTILINE)
NEEDED_BY = re.compile(r"^    #(?: via|  ) +([a-z0-9][a-z0-9._-]*)$", re.MULTILINE)


@dataclass(frozen=True)
class Pinned:
    """A package that requirements pin.

    Args:
        digests: SHA-256 of each file that may be installed, one of each platform.
        needed_by: the packages that require it.
        is_named: whether the product itself requires it.
        is_optional: whether only an option of the image installs it.
    """

    name: str
    version: str
    marker: str
    digests: tuple[str, ...]
    needed_by: frozenset[str]
    is_named: bool
    is_optional: bool = field(default=False, kw_only=True)

    @property
    def reference(self) -> str:
        """The package as a purl."""
        return f"pkg:pypi/{self.name}@{self.version}"


def read_pins(text: str) -> Iterator[Pinned]:
    """Read a file of requirements as `uv pip compile` writes it.

    Raises:
        ValueError: a package has no single version, or no hash.
    """
    for found in PIN.finditer(text):
        requirement = Requirement(found["requirement"])
        versions = [each.version for each in requirement.specifier if each.operator == "=="]
        digests = tuple(HASH.findall(found["more"]))
        if len(versions) != 1 or not digests:
            raise ValueError(f"{requirement.name} is not pinned to one version with its hashes")
        needed_by = frozenset(map(canonicalize_name, NEEDED_BY.findall(found["more"])))
        is_named = NAMED.search(found["more"]) is not None
        yield Pinned(
            canonicalize_name(requirement.name), versions[0], str(requirement.marker or ""), digests, needed_by, is_named
        )


def pins_of(sources: Path) -> list[Pinned]:
    """The packages of the image, by name: those of requirements.txt, and as optional what tracing needs besides."""
    required = {each.name: each for each in read_pins((sources / "requirements.txt").read_text())}
    tracing = {each.name: each for each in read_pins((sources / "requirements-tracing.txt").read_text())}
    optional = {name: replace(each, is_optional=True) for name, each in tracing.items() if name not in required}
    return [each for _, each in sorted((required | optional).items())]


def bill_of_materials(pins: list[Pinned], *, name: str, version: str, licence: str, seconds: int) -> str:
    """Write the bill of materials as JSON; the same pins give the same text.

    Args:
        seconds: the instant of the release, in seconds since 1970.
    """
    product = f"pkg:pypi/{name}@{version}"
    by_name = {each.name: each for each in pins}
    needs: dict[str, set[str]] = {product: set(), **{each.reference: set() for each in pins}}
    for each in pins:
        users = [by_name[user].reference for user in each.needed_by if user in by_name]
        for user in [*users, *([product] if each.is_named else [])]:
            needs[user].add(each.reference)
    components = [_component(each) for each in pins]
    dependencies = [{"ref": user, "dependsOn": sorted(needs[user])} for user in sorted(needs)]
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, json.dumps([product, seconds, components, dependencies]))}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z"),
            "component": {
                "type": "application", "bom-ref": product, "name": name, "version": version, "purl": product,
                "licenses": [{"license": {"id": licence}}],
            },
        },
        "components": components,
        "dependencies": dependencies,
    }  # fmt: skip
    return json.dumps(document, indent=2) + "\n"


def _component(pin: Pinned) -> dict[str, Any]:
    properties = [{"name": "credit-ledger:sha256-of-a-file", "value": digest} for digest in pin.digests]
    if pin.marker:
        properties.append({"name": "credit-ledger:marker", "value": pin.marker})
    return {
        "type": "library", "bom-ref": pin.reference, "name": pin.name, "version": pin.version, "purl": pin.reference,
        "scope": "optional" if pin.is_optional else "required", "properties": properties,
    }  # fmt: skip
