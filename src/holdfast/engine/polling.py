"""Waiting for files to be readable, whatever their numbers: `select()` refuses those from 1,024 on, and
a host process with many connections has such."""

import select

_LONGEST = 3600.0  # seconds: poll() takes milliseconds, as a C integer


class Poll:
    """Of one thread. Files are registered when they change, not for each wait."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._files: tuple[int, ...] = ()

    def wait(self, files: tuple[int, ...], seconds: float) -> list[int]:
        """Those that can be read, or have failed, within the time."""
        if files != self._files:
            for file in self._files:
                self._poll.unregister(file)
            for file in files:
                self._poll.register(file, select.POLLIN)
            self._files = files
        if 0 < seconds < 0.001:  # poll() counts in milliseconds, and would wait for a whole one
            if ready := self._poll.poll(0):
                return [file for file, _ in ready]
            select.select((), (), (), seconds)  # of no file: only its time is wanted
            seconds = 0
        return [file for file, _ in self._poll.poll(min(seconds, _LONGEST) * 1000)]
