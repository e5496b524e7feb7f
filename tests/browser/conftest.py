"""A real browser on a real dashboard: a server, a worker and a database of each engine.

Every page that a test opens is watched: an exception, an error on the console, a report of the content
security policy or an answer of 5xx fails the test. A test has a site of its own, unless its module
takes the fixtures of shared.py.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.browser.site import WIDE, Site, make_site
from tests.conftest import Database
from tools.programs import need

expect.set_options(timeout=15_000)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = need("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def site(database: Database) -> Iterator[Site]:
    with make_site(database) as site:
        yield site


@pytest.fixture
def context(chromium: Browser, site: Site) -> Iterator[BrowserContext]:
    context = chromium.new_context(base_url=site.url, viewport=WIDE, reduced_motion="reduce")  # type: ignore[arg-type]
    context.set_default_timeout(15_000)
    yield context
    context.close()
    problems, site.problems[:] = list(site.problems), []
    assert problems == []


@pytest.fixture
def page(context: BrowserContext, site: Site) -> Page:
    """Logged in as an administrator, and nowhere yet."""
    return site.enter(context, site.token)
