"""The built files of today's release and of the earlier ones, and an environment with each; made once for all tests here."""

from pathlib import Path

import pytest

from tests.embedding.outside.releases import EARLIER, Files, build_earlier_files, build_files, make_environment


@pytest.fixture(scope="package")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Today's."""
    return build_files(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="package")
def python(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with today's wheels."""
    return make_environment(files, tmp_path_factory.mktemp("outside"))


@pytest.fixture(scope="package")
def earlier_files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Those of the earliest release that is stored: an upgrade from it passes all that came since."""
    return build_earlier_files(EARLIER[0], tmp_path_factory.mktemp("earlier"))


@pytest.fixture(scope="package")
def earlier_python(earlier_files: Files, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheels of the earliest release."""
    return make_environment(earlier_files, tmp_path_factory.mktemp("earlier_outside"))
