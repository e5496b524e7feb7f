"""`@app.task` makes a task of a function, and raises for an option that breaks a rule."""

from typing import Any

import pytest

from holdfast import Context, Holdfast, InvalidInput


@pytest.fixture
def app() -> Holdfast:
    return Holdfast("sqlite:///x.db")


def plain(n: int = 0) -> int:
    return n


async def awaited() -> None: ...


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prio": 1}, "unknown option prio: there are name, backoff, .*timeout"),
        ({"queue": "a b"}, "queue='a b'"),
        ({"priority": 1.5}, "priority=1.5"),
        ({"max_attempts": 0}, "max_attempts=0"),
        ({"timeout": 0}, "timeout=0: give a positive duration, or None"),
        ({"timeout": "soon"}, "timeout='soon'"),
        ({"backoff": "soon"}, "backoff='soon'"),
        ({"on_lost": "maybe"}, "task 'plain': on_lost='maybe': choose 'strict' or 'relaxed'"),
        ({"discard_on": "ValueError"}, "task 'plain': discard_on='ValueError': give exception"),
        ({"retry_on": [ValueError, 3]}, "task 'plain': retry_on=.*: give exception classes"),
        ({"on_success": "send"}, "task 'plain': on_success='send': give a function"),
        ({"on_failure": 3}, "task 'plain': on_failure=3: give a function"),
        ({"retention": {"pending": 1}}, "pending is no final status"),
    ],
)
def test_invalid_options_are_refused(app: Holdfast, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        app.task(**options)(plain)
    assert app.tasks == {}


def test_process_is_refused_for_coroutines(app: Holdfast) -> None:
    with pytest.raises(InvalidInput, match="task 'awaited': process=True is for 'def' handlers"):
        app.task(process=True)(awaited)


def test_only_functions_become_tasks(app: Holdfast) -> None:
    with pytest.raises(InvalidInput, match="it decorates a function"):
        app.task("send")  # type: ignore[call-overload]


def test_a_task_name_is_unique(app: Holdfast) -> None:
    app.task(plain)
    with pytest.raises(InvalidInput, match="a task named 'plain' is registered already"):
        app.task(plain)
    assert app.task(name="other")(plain).name == "other"


def test_the_kind_of_a_handler_is_recognized(app: Holdfast) -> None:
    assert app.task(plain).conduct.kind == "thread"
    assert app.task(awaited).conduct.kind == "async"
    assert app.task(name="heavy", process=True)(plain).conduct.kind == "process"


def test_error_lists_take_one_class_or_several(app: Holdfast) -> None:
    one = app.task(name="one", discard_on=ValueError, retry_on=OSError)(plain)
    two = app.task(name="two", discard_on=(ValueError, KeyError))(plain)
    assert (one.policy.discard_on, one.policy.retry_on) == ((ValueError,), (OSError,))
    assert (two.policy.discard_on, two.policy.retry_on) == ((ValueError, KeyError), None)


def test_none_means_default_except_for_the_timeout(app: Holdfast) -> None:
    task = app.task(max_attempts=None, backoff=None, retry_on=None, timeout=None)(plain)
    assert (task.defaults.max_attempts, task.policy.retry_on) == (3, None)
    assert task.conduct.timeout is None
    assert app.task(name="other")(plain).conduct.timeout == 300.0


def test_a_context_in_front_is_no_argument_of_the_task(app: Holdfast) -> None:
    @app.task
    def with_it(ctx: Context, n: int) -> int:
        return n + ctx.attempt

    @app.task
    def by_text(ctx: "Context", n: int) -> int:
        return n

    @app.task
    def behind(n: int, ctx: int = 0) -> int:
        return n

    kinds = [task.conduct.takes_context for task in (with_it, by_text, behind)]
    assert kinds == [True, True, False]
    assert with_it.new_job((), {"n": 1}).payload == '{"n":1}'
    assert with_it(1) == 2  # a plain call gets a context that writes nothing
    with pytest.raises(InvalidInput, match="ctx"):
        with_it.new_job((), {"ctx": 1, "n": 1})
