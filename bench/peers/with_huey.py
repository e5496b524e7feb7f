"""Huey on SQLite: a log, a sync for every commit, one thread (more of them wait for one lock), and a
look at the queue every 0.1 s."""

import time

from huey import SqliteHuey  # type: ignore[import-not-found]

from bench.peers import script

QUEUE, ASIDE = "bench", "aside"
POLL = 0.1


def open_queue(name: str = QUEUE, *, fsync: bool = True) -> SqliteHuey:
    path = script.url().removeprefix("sqlite:///")
    return SqliteHuey(name, filename=path, fsync=fsync, journal_mode="wal")


def noop() -> None:
    pass


def setup() -> None:
    open_queue().storage.close()


def work() -> None:
    queue = open_queue()
    queue.task(name="noop")(noop)
    queue.task(name="note")(script.note)
    queue.create_consumer(workers=1, initial_delay=POLL, max_delay=POLL, periodic=False).run()


def fill(count: int) -> None:
    """Add jobs to another queue of the same file, from which one statement moves them. (Not synced:
    this part is not measured.)"""
    queue = open_queue(ASIDE, fsync=False)
    task = queue.task(name="noop")(noop)
    for _ in range(count):
        task()
    queue.storage.close()
    connection = open_queue().storage.conn
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE task SET queue = ? WHERE queue = ?", [QUEUE, ASIDE])
    script.ready(connection.execute("SELECT MAX(id) FROM task").fetchone()[0])
    connection.execute("COMMIT")


def send(count: int, seed: int) -> None:
    queue = open_queue()
    queue.task(name="noop")(noop)()
    task = queue.task(name="note")(script.note)
    for _ in script.pauses(count, seed):
        sent = time.time_ns()
        task(sent)
        script.acked(sent)


if __name__ == "__main__":
    script.run(setup=setup, work=work, fill=fill, send=send)
