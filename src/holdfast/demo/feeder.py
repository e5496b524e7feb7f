"""Enqueues the jobs of the demonstration, one after the other, at a low rate."""

import random
import threading
from collections.abc import Callable
from itertools import count

from holdfast.demo import tasks
from holdfast.errors import HoldfastError

INTERVAL = 0.3  # seconds between two enqueues

_dice = random.Random()  # noqa: S311 - for variety
_number = count(1).__next__


def _feed() -> None:
    name = _dice.choice(["news", "weather", "films", "recipes"])
    tasks.fetch_feed.enqueue(feed=f"https://{name}.example/feed.xml")


def _reminder() -> None:
    later = tasks.send_reminder.using(delay=_dice.uniform(1.5, 4.0))
    later.enqueue(to=_dice.choice(["ann", "ben", "cid", "dan"]))


def _podcast() -> None:
    name = _dice.choice(["history", "science", "music"])
    tasks.import_podcast.using(entity=("podcast", name)).enqueue(podcast=name)


def _partner() -> None:
    tasks.sync_partner.enqueue(partner=_dice.choice(["acme", "globex", "hooli", "initech"]))


def _partners() -> None:
    """Enqueue more jobs than the limit lets run at the same time."""
    for _ in range(4):
        _partner()


def _subtitles() -> None:
    number = _number()
    tasks.read_subtitles.enqueue(file=_dice.choice([f"fr-{number}.txt", f"sub-{number}9.srt"]))


def _film() -> None:
    """Start a workflow: one job, then three at the same time, then one."""
    film = f"film-{_number()}"
    with tasks.app.workflow(f"publish-{film}") as flow:
        scan = flow.add(tasks.scan_film, film=film)
        parts = [
            flow.add(
                tasks.encode_part.using(after=[scan], node=f"encode-{quality}"),
                film=film,
                quality=quality,
            )
            for quality in ("480p", "720p", "1080p")
        ]
        flow.add(tasks.publish_film.using(after=parts), film=film)


#: Each kind of job, in the order of the first round, and how often it is enqueued after that.
KINDS: dict[Callable[[], object], int] = {
    _film: 1,
    lambda: tasks.transcode_video.enqueue(video=f"film-{_number()}"): 1,
    _podcast: 3,
    lambda: tasks.call_flaky_api.enqueue(order=_number()): 3,
    _reminder: 2,
    lambda: tasks.parse_upload.enqueue(file=f"upload-{_number()}.xls"): 1,
    lambda: tasks.resize_image.enqueue(image=f"photo-{_number()}.jpg"): 4,
    lambda: tasks.checksum_archive.enqueue(archive=f"backup-{_number()}.tar"): 1,
    _feed: 10,
    _partners: 1,
    _partner: 2,
    _subtitles: 1,
}


class Feeder:
    """A thread that enqueues until it is stopped; first, without a pause, one job of each kind."""

    def __init__(self) -> None:
        self.problem: HoldfastError | None = None  #: why it ended by itself
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-demo", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        weights = list(KINDS.values())
        try:
            for enqueue in KINDS:
                if self._stop.is_set():
                    return
                enqueue()
            while not self._stop.wait(_dice.uniform(0.5, 1.5) * INTERVAL):
                [enqueue] = _dice.choices(list(KINDS), weights)
                enqueue()
        except HoldfastError as problem:
            self.problem = problem
