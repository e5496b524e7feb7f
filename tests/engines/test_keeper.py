"""The thread that ends overdue calls of a PostgreSQL engine."""

import threading

import pytest

from holdfast.engine.postgres.keeper import Keeper


def test_a_thread_is_made_when_it_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was made before a fork cannot be started after it, by Python 3.13.0."""
    made: list[threading.Thread] = []

    class Recorded(threading.Thread):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)
            made.append(self)

    monkeypatch.setattr(threading, "Thread", Recorded)
    keeper = Keeper()
    assert made == []
    keeper.close()  # without a thread there is none to wait for
    keeper = Keeper()
    keeper.start()
    assert [thread.is_alive() for thread in made] == [True]
    keeper.close()
    assert [thread.is_alive() for thread in made] == [False]
