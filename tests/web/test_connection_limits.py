"""The decisions about connections: for which address one counts, what it waits for, for how long."""

import logging
import math

import h11
import pytest

from holdfast.web.http.connections import (
    ConnectionLimits,
    ConnectionTable,
    Patience,
    Stage,
    fit,
    proxy_check,
    source_of,
    stage_of,
)
from holdfast.web.http.repeated_logs import Repeats

LIMITS = ConnectionLimits(total=4, per_address=2, head=10, body=30, pace=100, write=60)


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::1", "::1"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_the_address_that_a_connection_counts_for(address: str, source: str):
    assert source_of(address) == source


def test_proxies():
    is_proxy = proxy_check(["10.0.0.0/8", "192.0.2.7", "2001:db8::1", "edge"])
    assert all(map(is_proxy, ["10.1.2.3", "192.0.2.7", "2001:db8:0::1", "edge"]))
    assert not any(map(is_proxy, ["11.0.0.1", "192.0.2.8", "2001:db8::2", "core", ""]))
    assert not proxy_check([])("127.0.0.1")
    assert proxy_check(["*"])("203.0.113.9")


def test_descriptors_are_left_for_the_rest():
    assert [fit(1000, files) for files in (20_000, 1024, 256, 64)] == [1000, 924, 156, 16]
    assert fit(10, 1024) == 10


def test_stages():
    def stage(client: type, server: type, unsent: int = 0, *, paused: bool = False) -> Stage:
        return stage_of(client, server, unsent=unsent, paused=paused)

    assert stage(h11.IDLE, h11.IDLE) is Stage.HEAD
    assert stage(h11.SEND_BODY, h11.SEND_RESPONSE) is Stage.BODY
    assert stage(h11.SEND_BODY, h11.SEND_RESPONSE, paused=True) is Stage.BUSY
    assert stage(h11.SEND_BODY, h11.DONE) is Stage.HEAD
    assert stage(h11.DONE, h11.SEND_RESPONSE) is Stage.BUSY
    assert stage(h11.DONE, h11.SEND_BODY) is Stage.BUSY
    assert stage(h11.DONE, h11.SEND_BODY, 1) is Stage.RESPONSE
    assert stage(h11.DONE, h11.DONE, 1) is Stage.RESPONSE


def test_a_head_has_its_time_and_each_request_anew():
    patience, first, second = Patience(LIMITS, 0.0), object(), object()
    assert not patience.sample(Stage.HEAD, None, 5, 0, 9.0)
    assert patience.deadline == 10.0
    assert patience.sample(Stage.BUSY, first, 50, 0, 9.5)
    assert patience.deadline == math.inf
    assert patience.sample(Stage.HEAD, first, 50, 0, 20.0)
    assert patience.deadline == 30.0
    assert patience.sample(Stage.HEAD, second, 90, 0, 25.0)  # a whole request between two samples
    assert patience.deadline == 35.0


def test_a_body_keeps_its_pace():
    patience, request = Patience(LIMITS, 0.0), object()
    patience.sample(Stage.BODY, request, 0, 0, 0.0)
    assert patience.deadline == 30.0
    assert patience.sample(Stage.BODY, request, 100, 0, 10.0)
    assert patience.deadline == 31.0
    patience.sample(Stage.BODY, request, 101, 0, 20.0)
    assert patience.deadline == pytest.approx(31.01)
    patience.sample(Stage.BODY, request, 1_000_000, 0, 30.0)
    assert patience.deadline == 60.0  # what came too early is not saved up


def test_a_response_makes_progress():
    patience, request = Patience(LIMITS, 0.0), object()
    patience.sample(Stage.RESPONSE, request, 50, 1000, 0.0)
    assert patience.deadline == 60.0
    assert patience.sample(Stage.RESPONSE, request, 50, 900, 50.0)
    assert not patience.sample(Stage.RESPONSE, request, 50, 950, 60.0)
    assert patience.deadline == 110.0


class Client:
    """A connection that is where a test says."""

    exempt = False

    def __init__(self, source: str, now: float = 0.0, at: Stage = Stage.HEAD) -> None:
        self.source, self.at = source, at
        self.patience = Patience(LIMITS, now)
        self.aborted = False
        self.request = object()

    def stage(self) -> Stage:
        return self.at

    def progress(self) -> tuple[object, int, int]:
        return self.request, 0, 0

    def abort(self) -> None:
        self.aborted = True


def test_the_connection_that_has_waited_longest_makes_room():
    table = ConnectionTable(LIMITS)
    first, second, third = (Client("a") for _ in range(3))
    assert table.admit(first)
    assert table.admit(second)
    table.sweep(1.0)
    first.request = object()
    table.sweep(2.0)
    assert table.admit(third)
    assert [one.aborted for one in (first, second, third)] == [False, True, False]
    assert (len(table), table.closing) == (2, 1)
    table.release(second)
    table.release(second)
    assert (len(table), table.closing) == (2, 0)


def test_a_connection_with_a_request_is_never_closed_for_another():
    table = ConnectionTable(LIMITS)
    busy = [Client(source, at=Stage.BUSY) for source in "aabc"]
    assert all(map(table.admit, busy))
    assert not table.admit(Client("a"))
    assert not table.admit(Client("d"))
    table.release(busy[0])
    assert table.admit(Client("a"))
    assert table.admit(Client("d"))  # instead of the one before
    assert not any(one.aborted for one in busy)


def test_who_is_exempt_counts_only_in_total():
    table = ConnectionTable(LIMITS)
    proxied = [Client("p", at=Stage.BUSY) for _ in range(5)]
    for one in proxied:
        one.exempt = True
    assert [table.admit(one) for one in proxied] == [True] * 4 + [False]


def test_the_slow_are_closed():
    table = ConnectionTable(LIMITS)
    slow, busy = Client("a"), Client("b", at=Stage.BUSY)
    assert table.admit(slow)
    assert table.admit(busy)
    for now in (1.0, 10.0, 11.5):
        table.sweep(now)
    assert (slow.aborted, busy.aborted, len(table)) == (True, False, 1)


def test_a_connection_that_cannot_be_looked_at_ends_nothing(caplog: pytest.LogCaptureFixture):
    class Odd(Client):
        def progress(self) -> tuple[object, int, int]:
            raise AttributeError("no transport")

    table = ConnectionTable(LIMITS)
    odd, slow = Odd("a"), Client("b")
    assert table.admit(odd)
    assert table.admit(slow)
    for now in (1.0, 11.0):
        table.sweep(now)
    assert (odd.aborted, slow.aborted) == (False, True)
    assert caplog.messages == ["could not check a connection from a"] * 2


def test_a_connection_that_was_closed_makes_room_and_has_an_end():
    table = ConnectionTable(LIMITS)
    first, second = (Client("a", at=Stage.CLOSING) for _ in range(2))
    assert table.admit(first)
    assert table.admit(second)
    table.sweep(1.0)
    assert table.admit(Client("a"))
    assert (first.aborted, second.aborted) == (True, False)
    table.sweep(61.0)
    assert second.aborted


def test_repeated_lines_are_counted(caplog: pytest.LogCaptureFixture):
    logger, repeats = logging.getLogger("holdfast.web"), Repeats(0.0)
    logger.addFilter(repeats)
    try:
        for _ in range(1205):
            logger.warning("refused %s", "a")
        for number in range(150):
            logger.warning("refused %d", number)
        assert len(caplog.messages) == 100
        repeats.report(9.0)
        assert len(caplog.messages) == 100
        repeats.report(10.0)
        assert caplog.messages[100:] == [
            "refused a (1,204 times more in the last 10 s)",
            "51 other lines were left out in the last 10 s",
        ]
        logger.warning("refused %s", "a")
        assert caplog.messages[-1] == "refused a"
    finally:
        logger.removeFilter(repeats)


def test_another_exception_with_the_same_message_is_logged(caplog: pytest.LogCaptureFixture):
    logger, repeats = logging.getLogger("holdfast.web"), Repeats(0.0)
    logger.addFilter(repeats)
    try:
        for problem in (ValueError("a"), ValueError("b"), KeyError("a"), ValueError("a")):
            try:
                raise problem
            except Exception:
                logger.exception("Exception in ASGI application\n")
        assert [record.exc_info[1].args for record in caplog.records if record.exc_info] == [
            ("a",),
            ("b",),
            ("a",),
        ]
        repeats.report(10.0)
        assert caplog.messages[3:] == [
            "Exception in ASGI application: ValueError: a (1 times more in the last 10 s)"
        ]
    finally:
        logger.removeFilter(repeats)
