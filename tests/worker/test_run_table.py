"""The page in which a worker writes what has begun, read by another process at any moment."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast.core.ids import new_id
from holdfast.jobs.job import Claim
from holdfast.worker.processes.run_table import SLOTS, Begun, RunTable


@pytest.fixture
def file() -> Iterator[int]:
    file = RunTable.create()
    yield file
    os.close(file)


def test_a_reader_sees_started_runs_that_have_not_ended(file: int) -> None:
    writer, reader = RunTable(file), RunTable(file)
    assert reader.runs() == []
    first, second = Claim(new_id(), 1), Claim(new_id(), 7)
    place = writer.begin(first, 10.0, 20.5)
    writer.begin(second, 11.0, None)
    assert reader.runs() == [Begun(first, 10.0, 20.5), Begun(second, 11.0, None)]
    writer.end(place)
    assert reader.runs() == [Begun(second, 11.0, None)]
    third = Claim(new_id(), 2**40)
    writer.begin(third, 12.0, 13.0)
    assert set(reader.runs()) == {Begun(second, 11.0, None), Begun(third, 12.0, 13.0)}


def test_a_run_whose_hook_has_started_stays_without_a_deadline(file: int) -> None:
    writer, reader = RunTable(file), RunTable(file)
    claim = Claim(new_id(), 1)
    place = writer.begin(claim, 10.0, 20.5)
    writer.forget_deadline(place)
    writer.forget_deadline(-1)
    assert reader.runs() == [Begun(claim, 10.0, None)]


def test_a_full_page_is_no_error(file: int) -> None:
    writer = RunTable(file)
    claim = Claim(new_id(), 1)
    places = [writer.begin(claim, 0.0, None) for _ in range(SLOTS)]
    assert len(set(places)) == SLOTS
    full = writer.begin(claim, 0.0, None)
    assert full == -1
    writer.end(full)
    assert len(RunTable(file).runs()) == SLOTS
    writer.end(places[5])
    assert writer.begin(claim, 0.0, None) == places[5]


WRITER = """
import sys, time
from holdfast.jobs.job import Claim
from holdfast.worker.processes.run_table import RunTable
RunTable(int(sys.argv[1])).begin(Claim(sys.argv[2], 3), 1.0, 2.0)
print("begun", flush=True)
sys.stdin.read()
"""


def test_the_table_outlives_its_writers_process(file: int) -> None:
    id = new_id()
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(file), id],
        pass_fds=[file],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.kill()
    process.communicate()
    assert RunTable(file).runs() == [Begun(Claim(id, 3), 1.0, 2.0)]


BUSY_WRITER = """
import sys
from holdfast.jobs.job import Claim
from holdfast.worker.processes.run_table import RunTable
table = RunTable(int(sys.argv[1]))
quick, lasting = Claim(sys.argv[2], 1), Claim(sys.argv[3], 2)
first = table.begin(quick, 1.0, 2.0)
table.begin(lasting, 3.0, 4.0)
print("begun", flush=True)
while True:
    table.forget_deadline(first)
    table.end(first)
    first = table.begin(quick, 1.0, 2.0)
"""


def test_a_reader_never_sees_a_partially_written_record(file: int) -> None:
    quick, lasting = Claim(new_id(), 1), Claim(new_id(), 2)
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY_WRITER, str(file), quick.id, lasting.id],
        pass_fds=[file],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        reader = RunTable(file)
        seen = {run for _ in range(150_000) for run in [tuple(reader.runs())]}
    finally:
        process.kill()
        process.communicate()
    whole = {Begun(quick, 1.0, 2.0), Begun(quick, 1.0, None)}
    assert all(Begun(lasting, 3.0, 4.0) in runs for runs in seen)
    assert {run for runs in seen for run in runs if run.claim == quick} == whole
