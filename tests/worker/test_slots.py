"""Lanes: what callers may give as queues and concurrency, and what comes of it."""

from typing import Any

import pytest

from holdfast import Holdfast, InvalidInput
from holdfast.worker.running.slots import DEFAULT_SLOTS, MOST, Lane, make_lanes, parse_queues

KINDS = {"async", "thread", "process"}


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        (None, {"default": None}),
        ("default", {"default": None}),
        ("default,media", {"default": None, "media": None}),
        ("default=10,media=2", {"default": 10, "media": 2}),
        (" default = 10 , media ", None),
        (" default=10 , media ", {"default": 10, "media": None}),
        ("a,b=3", {"a": None, "b": 3}),
        (["default", "media=2"], {"default": None, "media": 2}),
        (("a",), {"a": None}),
        ({"media": 2, "default": None}, {"media": 2, "default": None}),
        ("media=1,media=2", {"media": 2}),
    ],
)
def test_queues_are_parsed(queues: Any, expected: dict[str, int | None] | None) -> None:
    if expected is None:
        with pytest.raises(InvalidInput):
            parse_queues(queues)
    else:
        assert parse_queues(queues) == expected
        assert list(parse_queues(queues)) == list(expected)  # in the order given


@pytest.mark.parametrize(
    ("queues", "message"),
    [
        ("", "queue=''"),
        ("a,,b", "queue=''"),
        ([], "none was given"),
        ("media=", "queues: 'media=': write 'media' or 'media=2'"),
        ("media=two", "queues: 'media=two'"),
        ("media=-2", "queues: 'media=-2'"),
        ("media=1.5", "queues: 'media=1.5'"),
        ("=2", "queue=''"),
        ("a b", "queue='a b'"),
        ({"a b": 1}, "queue='a b'"),
    ],
)
def test_invalid_queues_are_refused(queues: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_queues(queues)


def sizes(lanes: list[Lane]) -> list[tuple[str, set[str], int]]:
    return [(lane.queue, set(lane.kinds), lane.size) for lane in lanes]


def test_a_queue_has_a_lane_for_each_kind_of_handler() -> None:
    assert sizes(make_lanes("default", None)) == [
        ("default", {kind}, size) for kind, size in DEFAULT_SLOTS.items()
    ]
    assert set(DEFAULT_SLOTS) == KINDS
    assert (DEFAULT_SLOTS["async"], DEFAULT_SLOTS["thread"]) == (100, 10)


def test_a_size_makes_one_lane_for_all_kinds() -> None:
    assert sizes(make_lanes("media=2", None)) == [("media", KINDS, 2)]


def test_concurrency_is_the_default_size_of_queues() -> None:
    assert sizes(make_lanes("default,media=2", 7)) == [("default", KINDS, 7), ("media", KINDS, 2)]


def test_all_slots_are_free_at_first() -> None:
    for lane in make_lanes("default,media=2", None):
        assert (lane.free, lane.exhausted, lane.types) == (lane.size, False, [])


@pytest.mark.parametrize(
    ("queues", "concurrency"),
    [
        ("media=0", None),
        (f"media={MOST + 1}", None),
        ("media", 0),
        ("media", -1),
        ({"media": True}, None),
        ({"media": "2"}, None),
        ({"media": 1.5}, None),
    ],
)
def test_invalid_sizes_are_refused(queues: Any, concurrency: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"concurrency of queue 'media'.*from 1 to {MOST}"):
        make_lanes(queues, concurrency)


def test_a_lane_takes_the_currently_registered_tasks_of_its_kinds() -> None:
    app = Holdfast("sqlite:///x.db")

    @app.task
    def in_a_thread() -> None: ...

    @app.task
    async def on_the_loop() -> None: ...

    lanes = make_lanes(None, None)
    [both] = make_lanes("default=2", None)
    for lane in (*lanes, both):
        lane.update(app.tasks)
    assert {next(iter(lane.kinds)): lane.types for lane in lanes} == {
        "thread": ["in_a_thread"],
        "async": ["on_the_loop"],
        "process": [],
    }
    assert both.types == ["in_a_thread", "on_the_loop"]

    @app.task(process=True)
    def in_a_process() -> None: ...

    for lane in lanes:
        lane.update(app.tasks)
    assert [lane.types for lane in lanes if "process" in lane.kinds] == [["in_a_process"]]
