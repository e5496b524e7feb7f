"""Conditions of a page to wait for, instead of a fixed time."""

from playwright.sync_api import Page


def settled(page: Page) -> Page:
    """No request is in flight, and the last answer is drawn."""
    page.wait_for_function("() => window.holdfastIdle === true")
    return page


def opened(page: Page, address: str) -> Page:
    page.goto(address)
    return settled(page)


def fetched_again(page: Page) -> Page:
    """The page has asked the server at least once more, and drawn the answer."""
    before = page.evaluate("() => window.holdfastRequests")
    page.wait_for_function("(before) => window.holdfastRequests > before", arg=before)
    return settled(page)
