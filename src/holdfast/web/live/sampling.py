"""Subscribers to a sample: a few events of each kind about once a second, and when to fetch again."""

import asyncio
import time
from collections.abc import Callable, Collection

from holdfast.events.sampling import Pace
from holdfast.web.live.frames import Frame
from holdfast.web.live.subscriber import Subscriber

REST = 0.9  #: seconds between two deliveries: people do not read faster
AGAIN = 1.5  #: seconds until subscribers fetch again: the second of every writer is over by then


class Sampler:
    """Passes a sample of events on to its subscribers. Its state belongs to the event loop."""

    def __init__(self, subscribers: Callable[[], Collection[Subscriber]]) -> None:
        self._subscribers = subscribers
        self._pace = Pace(time.monotonic)
        self._is_resting = False
        self._waits = False  # an event is queued, and is delivered after the rest
        self._will_refetch = False
        self._still_brisk = False

    def offer(self, frames: list[Frame]) -> None:
        """Queue a few events of each kind. They are queued immediately and delivered later, so that a
        subscriber that reconnects in between resumes at its position."""
        subscribers = self._subscribers()
        if not subscribers:
            return
        shown = []
        for frame in frames:
            if self._pace.left(frame.event.kind):
                shown.append(frame)
            self._pace.count(frame.event.kind)
        for subscriber in subscribers:
            subscriber.offer(shown, wake=False)
        if shown:
            self._wake_soon()
        if self._pace.is_brisk:
            self._still_brisk = True
            if not self._will_refetch:
                self._refetch_later()

    def _wake_soon(self) -> None:
        self._waits = True
        if not self._is_resting:
            self._wake()

    def _wake(self) -> None:
        """Deliver what is queued, then rest. What comes meanwhile is delivered after the rest."""
        self._is_resting = self._waits
        if not self._waits:
            return
        self._waits = False
        for subscriber in self._subscribers():
            subscriber.wake.set()
        asyncio.get_running_loop().call_later(REST, self._wake)

    def _refetch_later(self) -> None:
        self._will_refetch = True
        self._still_brisk = False
        asyncio.get_running_loop().call_later(AGAIN, self._refetch)

    def _refetch(self) -> None:
        """Let subscribers fetch again: more may have happened than the sample shows."""
        self._will_refetch = False
        for subscriber in self._subscribers():
            subscriber.must_refetch = True
        self._wake_soon()
        if self._still_brisk:  # there may be more events that the sample left out
            self._refetch_later()
