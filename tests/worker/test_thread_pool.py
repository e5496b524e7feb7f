"""Threads for handlers, on a machine that has none left."""

import threading

import pytest

from holdfast.worker.running.thread_pool import Threads

PATIENCE = 30.0


def test_work_waits_for_a_thread_if_no_more_can_be_started(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    threads = Threads("holdfast-test")
    threads.start()
    began, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        began.set()
        assert go_on.wait(PATIENCE)

    threads.submit(first)
    assert began.wait(PATIENCE)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        threads.submit(done.set)
    assert "no thread could be started" in caplog.text
    assert not done.is_set()
    go_on.set()
    assert done.wait(PATIENCE)
    both = threading.Barrier(3)  # idle threads are counted right: two at a time run again
    for _ in range(2):
        threads.submit(lambda: both.wait(PATIENCE) and None)
    both.wait(PATIENCE)
    threads.close(PATIENCE)


def test_a_start_without_a_single_thread_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError):
        Threads("holdfast-test").start()
