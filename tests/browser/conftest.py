"""A real browser on a real dashboard: a server, a worker and a database of each engine.

Every page that a test opens is watched: an exception, an error on the console, a report of the content
security policy or an answer of 5xx fails the test.
"""

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, sync_playwright

from holdfast import Holdfast
from holdfast.access import Access
from holdfast.web import dashboard
from tests.browser.application import make_application
from tests.conftest import Database
from tools.browser import REMEDY, find

WIDE = {"width": 1440, "height": 900}
_QUIET = ("net::ERR_ABORTED", "net::ERR_INCOMPLETE_CHUNKED_ENCODING")  # a stream that a page left
_REFUSED = "the server responded with a status of 4"  # some tests ask for what they may not have


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = find()
    if path is None:
        pytest.fail(REMEDY)
    playwright: Playwright
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Site:
    """A dashboard that is served, and what stands behind it."""

    app: Holdfast
    url: str
    token: str
    access: Access
    server: Any
    problems: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> Page:
        page.on("pageerror", lambda error: self.problems.append(f"exception: {error}"))
        page.on("console", lambda message: self._heard(message.type, message.text))
        page.on("response", lambda answer: self._answered(answer.status, answer.url))
        return page

    def _heard(self, kind: str, text: str) -> None:
        if kind == "error" and not any(quiet in text for quiet in (*_QUIET, _REFUSED)):
            self.problems.append(f"console: {text}")

    def _answered(self, status: int, url: str) -> None:
        if status >= 500 and not url.endswith("/health"):
            self.problems.append(f"{status}: {url}")


@contextlib.contextmanager
def served(application: Any) -> Iterator[str]:
    """An ASGI application on a free port of this machine."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        config = uvicorn.Config(
            application, log_level="warning", lifespan="off", timeout_graceful_shutdown=2
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            application.state.web.close()
            server.should_exit = True
            thread.join(10)


@pytest.fixture
def site(database: Database) -> Iterator[Site]:
    app = make_application(database)
    access = Access(app)
    token = access.first_token()
    assert token is not None
    server = dashboard(app, hosts=["127.0.0.1"])
    with served(server) as url:
        site = Site(app, url, token, access, server)
        yield site
    assert site.problems == []


@pytest.fixture
def context(chromium: Browser, site: Site) -> Iterator[BrowserContext]:
    context = chromium.new_context(base_url=site.url, viewport=WIDE, reduced_motion="reduce")  # type: ignore[arg-type]
    context.set_default_timeout(15_000)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, site: Site) -> Page:
    """Logged in, and nowhere yet."""
    answer = context.request.post(f"{site.url}/api/v1/session", data={"token": site.token})
    assert answer.ok, answer.text()
    return site.watch(context.new_page())
