"""A glance: what pages follow that fetch what they show. A few events of each kind, and a word when it
is time to look again."""

import json
from collections import Counter
from typing import Any

import pytest

from holdfast.events.sampling import GLANCE, MOST
from tests.events.test_events import stored
from tests.web.live.test_access import link_of
from tests.web.live.test_streams import enqueue, enqueue_many, ids, take
from tests.web.live.test_topics import held, topics
from tests.web.serving import EVENTS, Site

MANY = 10 * MOST


def test_of_little_everything_is_told(site: Site, carrier: Any) -> None:
    with carrier(site, "?glance=true") as page:
        assert page.take()["event"] == "hello"
        assert topics(site.app) == {GLANCE}
        made = enqueue(site.app, 5)
        assert ids(take(page, 5)) == made


def test_of_much_a_little_is_told_and_when_to_look_again(site: Site, carrier: Any) -> None:
    with carrier(site, "?glance=true") as page:
        page.take()
        page.until("hello")  # the one by which every process knows of it
        enqueue_many(site.app, MANY)
        events = page.until("hello")
        told = Counter(event["event"] for event in events)
        assert (
            told["job:enqueued"] == stored(site.app.engine) <= 2 * MOST
        )  # a second may end meanwhile


def test_the_last_change_is_before_the_last_hello(site: Site) -> None:
    """However long it goes on: who looks when told to has seen everything in the end."""
    app = site.app

    @app.task(name="many")
    def many() -> None: ...

    with site.socket("?glance=true") as page:
        page.take()
        page.until("hello")
        for _ in range(30):
            many.enqueue_many([{}] * MOST)
        seen = 0
        while seen < 30 * MOST:
            page.until("hello")
            seen = app.jobs.count()


def test_beside_who_follows_everything_it_is_told_no_more(site: Site) -> None:
    with site.socket() as whole, site.socket("?glance=true") as page:
        whole.take()
        page.take()
        page.until("hello")
        made = enqueue(site.app, MANY)
        assert ids(take(whole, MANY)) == made
        told = [event for event in page.until("hello") if event["event"] == "job:enqueued"]
        assert MOST <= len(told) < MANY


def test_who_comes_back_is_told_what_was_missed_if_it_is_little(site: Site, carrier: Any) -> None:
    app = site.app
    with carrier(site, "?glance=true") as page:
        position = page.take()["position"]
        made = enqueue(app, 3)
    with carrier(site, f"?glance=true&after={position}") as page:
        assert ids(take(page, 3)) == made


def test_who_missed_much_looks_again(
    site: Site, carrier: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once: not because writers may not have known of it yet."""
    monkeypatch.setattr("holdfast.web.live.hub.SETTLED", 3600.0)
    with site.socket() as whole:
        whole.take()
        with carrier(site, "?glance=true") as page:
            position = page.take()["position"]
        made = enqueue(site.app, MANY)
        take(whole, MANY)
        with carrier(site, f"?glance=true&after={position}") as page:
            *told, hello = page.until("hello")
            assert ids(told) == made[-MOST:]
            assert hello["position"] >= told[-1]["position"]


@pytest.mark.parametrize("filter", ["type=send", "queue=default", "entity=movie:7", "kinds=failed"])
def test_it_is_of_everything(site: Site, filter: str) -> None:
    told = site.get(f"{EVENTS}?glance=true&{filter}", headers=site.headers())
    assert told.status_code == 422
    name = filter.partition("=")[0]
    assert told.json()["detail"] == (f"glance: tells a little of everything: leave {name} out")
    with site.socket(f"?glance=true&{filter}") as refused:
        assert refused.code() == 4422


def test_it_is_not_for_guests(site: Site) -> None:
    link = link_of(site, held(site.app))
    told = site.get(f"{EVENTS}{link}&glance=true")
    assert told.status_code == 422
    assert "a link says what may be followed" in json.dumps(told.json())
