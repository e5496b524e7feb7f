"""The Django settings that pages expect of a reader's project, and the site, staged and built once."""

from pathlib import Path

import pytest

from tests.support.django_site import configure
from tools import site


@pytest.fixture(autouse=True, scope="session")
def a_site_of_django() -> None:
    configure()


@pytest.fixture(scope="session")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of all pages as the builder gets them, with those made from the code."""
    folder = tmp_path_factory.mktemp("staged")
    site.stage(folder)
    return folder


@pytest.fixture(scope="session")
def built(staged: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built") / "site"
    site.build(staged, out)
    return out
