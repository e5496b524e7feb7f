"""What a worker and its handler processes say to each other, when things go wrong."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from holdfast.worker.processes.ipc import Channel
from tests.support.threads import in_threads


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    here, there = Channel(ours), Channel(theirs)
    yield here, there, ours
    here.close()
    there.close()


def test_messages_of_several_threads_are_not_mixed(
    ends: tuple[Channel, Channel, socket.socket],
) -> None:
    """Each is larger than what the socket takes at once."""
    here, there, ours = ends
    received: list[dict[str, str]] = []
    reader = threading.Thread(target=lambda: received.extend(there))
    reader.start()
    sent = in_threads(4, lambda number: [here.send({"x": str(number) * 500_000}) for _ in range(5)])
    ours.shutdown(socket.SHUT_WR)
    reader.join(20)
    assert sent == [[True] * 5] * 4
    assert len(received) == 20
    assert {len(set(message["x"])) for message in received} == {1}


@pytest.mark.parametrize("rest", [b'{"x": 1', b'{"x": {"y"\n'])
def test_a_truncated_message_ends_the_connection(
    ends: tuple[Channel, Channel, socket.socket], rest: bytes
) -> None:
    here, there, ours = ends
    here.send({"x": 0})
    ours.sendall(rest)
    ours.shutdown(socket.SHUT_WR)
    assert list(there) == [{"x": 0}]


def test_nothing_can_be_sent_to_a_closed_peer(ends: tuple[Channel, Channel, socket.socket]) -> None:
    here, there, _ = ends
    there.close()
    assert here.send({"x": "y" * 1_000_000}) is False


def test_a_peer_that_does_not_read_delays_no_sender(
    ends: tuple[Channel, Channel, socket.socket],
) -> None:
    """What it cannot take is kept up to a bound and then dropped, never in the middle of a message."""
    here, there, ours = ends
    sent = [here.send_now({"number": number}) for number in range(50_000)]
    assert sent[0] is True
    assert sent[-1] is False
    received: list[dict[str, int]] = []
    reader = threading.Thread(target=lambda: received.extend(there))
    reader.start()
    deadline = time.monotonic() + 30
    while not (here.send_now({"last": 1}) and len(received) >= sum(sent)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    ours.shutdown(socket.SHUT_WR)
    reader.join(20)
    kept = [number for number, was in enumerate(sent) if was]
    assert [one["number"] for one in received if "number" in one] == kept
    assert received[-1] == {"last": 1}


def test_messages_end_with_the_process_although_another_keeps_the_connection(
    ends: tuple[Channel, Channel, socket.socket],
) -> None:
    here, there, _ = ends
    here.send({"x": 0})
    here.send({"x": 1})
    assert list(there.messages(lambda: False)) == [{"x": 0}, {"x": 1}]
