"""Enqueues the jobs of the demonstration, one after the other, at a low rate."""

import random
import threading
from collections.abc import Callable, Iterator
from itertools import chain, count, cycle

from holdfast.demo import tasks
from holdfast.errors import HoldfastError
from holdfast.jobs.job import Job

INTERVAL = 0.3  # seconds between two enqueues

_dice = random.Random()  # noqa: S311 - for variety
_numbers = count(1)


def _feed() -> Job:
    name = _dice.choice(["news", "weather", "films", "recipes"])
    return tasks.fetch_feed.enqueue(feed=f"https://{name}.example/feed.xml")


def _video() -> Job:
    return tasks.transcode_video.enqueue(video=f"film-{next(_numbers)}")


def _flaky() -> Job:
    return tasks.call_flaky_api.enqueue(order=next(_numbers))


def _upload() -> Job:
    return tasks.parse_upload.enqueue(file=f"upload-{next(_numbers)}.xls")


def _reminder() -> Job:
    later = tasks.send_reminder.using(delay=_dice.uniform(1.5, 4.0))
    return later.enqueue(to=_dice.choice(["ann", "ben", "cid", "dan"]))


def _podcast() -> Job:
    name = _dice.choice(["history", "science", "music"])
    return tasks.import_podcast.using(entity=("podcast", name)).enqueue(podcast=name)


def _image() -> Job:
    return tasks.resize_image.enqueue(image=f"photo-{next(_numbers)}.jpg")


def _archive() -> Job:
    return tasks.checksum_archive.enqueue(archive=f"backup-{next(_numbers)}.tar")


def _partner() -> Job:
    name = _dice.choice(["acme", "globex", "hooli", "initech"])
    return tasks.sync_partner.enqueue(partner=name)


def _partners() -> Job:
    """Enqueue more jobs than the limit lets run at the same time."""
    return [_partner() for _ in range(4)][-1]


def _subtitles() -> Job:
    number = next(_numbers)
    return tasks.read_subtitles.enqueue(
        file=_dice.choice([f"fr-{number}.txt", f"sub-{number}9.srt"])
    )


def _film() -> Job:
    """Start a workflow: one job, then three at the same time, then one."""
    film = f"film-{next(_numbers)}"
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
        last = flow.add(tasks.publish_film.using(after=parts), film=film)
    return tasks.app.jobs.get(last.id)


ONE_OF_EACH = (
    *(_film, _video, _podcast, _flaky, _reminder, _upload, _image, _archive, _feed, _partners),
    _subtitles,
)
MIX = (
    *(_feed, _video, _podcast, _feed, _image, _flaky, _feed, _reminder, _archive, _feed),
    *(_image, _partners, _feed, _podcast, _feed, _flaky, _image, _feed, _upload, _reminder),
    *(_partner, _film, _feed, _subtitles, _image, _feed, _partner, _feed),
)


class Feeder:
    """A thread that enqueues until it is stopped; first, without a pause, one job of each kind."""

    def __init__(self, failed: Callable[[HoldfastError], None]) -> None:
        self._failed = failed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-demo", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            for number, enqueue in enumerate(self._order()):
                if self._stop.is_set():
                    return
                enqueue()
                if number >= len(ONE_OF_EACH):
                    self._stop.wait(_dice.uniform(0.5, 1.5) * INTERVAL)
        except HoldfastError as problem:
            self._failed(problem)

    def _order(self) -> Iterator[Callable[[], Job]]:
        return chain(ONE_OF_EACH, cycle(MIX))
