"""Texts from the database and from handlers cannot act upon a terminal: commands print them, also as
JSON, and workers log them with their control characters escaped."""

import json
import logging
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Limit
from holdfast.core.log_format import JsonLines, Text, escaped
from holdfast.engine.engine import Engine
from holdfast.jobs.job import LogLine
from holdfast.jobs.outcome import failed, retry_later
from holdfast.limits.limit import make_rule
from tests.cli.command import Command, environment
from tests.support.jobs import execute, insert, new, running
from tests.support.waiting import until

TITLE = "\x1b]0;owned\x07"
NASTY = f"{TITLE}\x1b[2J\rover\x08\x7f\x9b31mred\x85\u202eright to left\u2066\u2028end"
# Everything of C0 but tab and line feed, DEL, C1, and what changes the direction or ends a line.
ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def harmless(text: str) -> bool:
    return ACTS.search(text) is None


@pytest.fixture
def job_id(now: Engine) -> str:
    """A job that failed, with such a text in everything that a handler or a caller can choose."""
    made = running(
        now, key=NASTY, payload=json.dumps({"n": NASTY}), entity_type="e", entity_id='"x"'
    )
    execute(
        now,
        "UPDATE {jobs} SET message = :text, progress = 5, prune_error = :text, node = :text,"
        " entity_type = :text, disabled_because = :text WHERE id = :id",
        text=NASTY,
        id=made.id,
    )
    now.log(
        [
            LogLine(
                job_id=made.id,
                claim_no=1,
                attempt=1,
                line_no=1,
                at=made.created_at + timedelta(seconds=1),
                level="info",
                text=NASTY,
            )
        ]
    )
    now.finish([failed(made, f"ValueError: {NASTY}", trace=NASTY, keep=60.0)])
    other = running(now)
    now.finish([retry_later(other, NASTY, delay=60.0)])
    return made.id


@pytest.mark.parametrize(
    "words",
    [
        *(["jobs", "list"], ["jobs", "show", "ID"], ["jobs", "logs", "ID"], ["errors"]),
        *(["jobs", "logs", "ID", "--follow"], ["jobs", "watch", "ID"], ["health"], ["stats"]),
        *(["workers"], ["schedules", "list"], ["workflows", "list"], ["queues", "list"]),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["text", "json"])
def test_no_command_prints_what_a_terminal_acts_upon(
    command: Command, job_id: str, words: list[str], as_json: list[str]
) -> None:
    told = command(*(job_id if word == "ID" else word for word in words), *as_json)
    assert harmless(told.out), repr(told.out)
    assert harmless(told.err), repr(told.err)
    if words[0] == "jobs" and words[1] != "list" and not as_json:
        assert "\\x1b[2J" in told.out
        assert "\\x9b31mred" in told.out
        assert "\\u202eright" in told.out
    if words[1:2] == ["show"] and as_json:
        assert json.loads(told.out)["payload"] == {"n": NASTY}  # the same value


def test_the_limit_that_a_job_waits_for(command: Command, now: Engine) -> None:
    """Its key is made of the job's arguments."""
    rule = make_rule("send", [Limit(1, per="n")], ["n"], lambda payload: {})
    assert rule is not None
    now.insert([new(payload=json.dumps({"n": TITLE})) for _ in range(2)])
    now.beat("w", "{}")
    options = {"worker": "w", "types": ["send"], "rules": {"send": rule}}
    [_] = now.claimer.fetch("default", 5, **options).jobs
    [waiting] = [
        row[0]
        for row in execute(now, "SELECT CAST(id AS text) FROM {jobs} WHERE status = 'blocked'")
    ]
    told = command("jobs", "show", waiting)
    assert "1 of 1 running" in told.out
    assert harmless(told.out)


def test_what_a_command_refuses(command: Command, now: Engine) -> None:
    insert(now)
    told = command("jobs", "show", NASTY)
    assert told.code != 0
    assert harmless(told.err)


def record(message: str, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("holdfast.job", logging.INFO, "f", 1, message, (), None)
    vars(made).update(extra)
    return made


def test_the_log_of_a_worker_as_text_and_as_json() -> None:
    nasty = record(f"first\n\tsecond {NASTY}", task=NASTY)
    shown = Text().format(nasty)
    assert harmless(shown)
    assert "first\n\tsecond \\x1b]0;owned\\x07\\x1b[2J\\x0dover" in shown
    line = JsonLines().format(nasty)
    assert harmless(line)
    assert json.loads(line)["message"] == f"first\n\tsecond {NASTY}"


def test_what_is_harmless_stays() -> None:
    text = "naïve 日本語 🙂 \\x1b e\u0301\n\tend"
    assert escaped(text) == text


PROGRAM = f"""
from holdfast import Context, Holdfast
app = Holdfast()

@app.task
def speak(ctx: Context) -> None:
    ctx.log.warning({NASTY!r})
    raise ValueError({NASTY!r})
"""


def test_a_worker_on_a_terminal(tmp_path: Path) -> None:
    """`holdfast worker`, whose handler logs such a text and fails with it."""
    (tmp_path / "talker.py").write_text(PROGRAM)
    url = f"sqlite:///{tmp_path}/jobs.db"
    with Holdfast(url) as app:
        job = app.enqueue("speak", max_attempts=1)
        worker = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "worker", "talker:app"],
            cwd=tmp_path,
            env=environment(HOLDFAST_URL=url),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            until(lambda: app.jobs.get(job.id).status == "failed", "its failure", patience=60.0)
        finally:
            worker.terminate()
            out = worker.communicate(timeout=60)[0].decode()
    assert "\\x1b[2J" in out
    assert harmless(out), repr(out)
