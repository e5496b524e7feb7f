"""What a reader's own project has, and the pages do not repeat."""

import pytest

from tests.support.django_site import configure


@pytest.fixture(autouse=True, scope="session")
def a_site_of_django() -> None:
    configure()
