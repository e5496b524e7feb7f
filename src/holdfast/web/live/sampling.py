"""Subscribers to a sample: a few events of each kind about once a second, and when to fetch again."""

import asyncio
import time
from collections.abc import Callable, Collection

from holdfast.events.sampling import Pace
from holdfast.web.live.frames import Frame
from holdfast.web.live.subscriber import Subscriber

REST = 0.9  #: seconds between two messages to one who glances: nobody reads faster
AGAIN = 1.5  #: seconds after which they look again: a writer's second is over by then


class Glances:
    """Belongs to the event loop, like those of whom it is asked: `among` tells them."""

    def __init__(self, among: Callable[[], Collection[Subscriber]]) -> None:
        self._among = among
        self._pace = Pace(time.monotonic)
        self._is_resting = False
        self._waits = False  # something, until it has rested
        self._is_looking = False  # again, in a moment
        self._still_brisk = False

    def show(self, frames: list[Frame]) -> None:
        """A few of each kind, whatever is written for others. They are in everyone's line at once, so
        that who goes meanwhile comes back to where it was."""
        subscribers = self._among()
        if not subscribers:
            return
        shown = []
        for frame in frames:
            if self._pace.room(frame.event.kind):
                shown.append(frame)
            self._pace.count(frame.event.kind)
        for subscriber in subscribers:
            subscriber.offer(shown, wake=False)
        if shown:
            self._wake_soon()
        if self._pace.is_brisk:
            self._still_brisk = True
            if not self._is_looking:
                self._look_later()

    def _wake_soon(self) -> None:
        self._waits = True
        if not self._is_resting:
            self._wake()

    def _wake(self) -> None:
        """And again, for what comes while it rests."""
        self._is_resting = self._waits
        if not self._waits:
            return
        self._waits = False
        for subscriber in self._among():
            subscriber.wake.set()
        asyncio.get_running_loop().call_later(REST, self._wake)

    def _look_later(self) -> None:
        self._is_looking = True
        self._still_brisk = False
        asyncio.get_running_loop().call_later(AGAIN, self._look_again)

    def _look_again(self) -> None:
        """More may have happened than was told."""
        self._is_looking = False
        for subscriber in self._among():
            subscriber.unsure = True
        self._wake_soon()
        if self._still_brisk:  # some may have come after those that this is for
            self._look_later()
