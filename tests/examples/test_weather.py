"""Weather tiles: a server over HTTP, workers on one file, one killed. Many tests check one run."""

import socket
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from examples.harness import Harness
from examples.remote_server import Answer, RemoteServer
from examples.weather import app as jobs
from examples.weather import grib, sources, store, tiles
from examples.weather.checks import (
    MODELS,
    NEW,
    OLD,
    PROCESSES,
    SLOTS,
    Facts,
    beaten_since,
    run_checks,
)
from examples.weather.forecast_server import field_of
from holdfast import Job
from holdfast.testing import temporary

FILES = [
    (model, run, hour)
    for model, runs in MODELS.items()
    for run, hours in runs.items()
    for hour in hours
]


@pytest.fixture(scope="module")
def facts() -> Facts:
    with Harness("weather") as harness:
        return run_checks(harness)


def of_type(facts: Facts, type: str) -> list[Job]:
    return [job for job in facts.jobs if job.type == type]


# the rows


def test_the_database_is_a_file_in_wal_mode(facts: Facts) -> None:
    assert facts.journal_mode == "wal"


def test_a_job_has_every_column_of_the_design(facts: Facts) -> None:
    [job] = [job for job in facts.jobs if job.payload == {**FILE, "region": "ne"}]
    assert job.type == "build_tile"
    assert job.priority == 2023012512
    assert (job.status, job.attempts, job.error) == ("completed", 1, None)
    assert job.worker_id is not None
    assert job.started_at is not None
    assert job.completed_at is not None
    assert job.created_at <= job.started_at <= job.completed_at
    assert job.created_at.utcoffset() == job.completed_at.utcoffset()
    assert str(job.created_at.tzinfo) == "UTC"


FILE = {"model_id": "gfs", "run_id": NEW, "hour": 3}


def test_the_jobs_and_their_arguments_are_those_of_the_design(facts: Facts) -> None:
    assert {tuple(job.payload) for job in of_type(facts, "scan_source")} == {("model_id",)}
    found = [tuple(job.payload.values()) for job in of_type(facts, "ingest_grib")]
    assert sorted(found) == sorted(FILES)
    built = [tuple(job.payload.values()) for job in of_type(facts, "build_tile")]
    assert sorted(built) == sorted((*file, region) for file in FILES for region in tiles.BOUNDS)
    assert list(of_type(facts, "build_tile")[0].payload) == ["model_id", "run_id", "hour", "region"]


def test_a_job_is_pending_and_has_priority_zero_by_default() -> None:
    with temporary(jobs.app):
        job = jobs.build_tile.enqueue(**FILE, region="ne")
        assert (job.status, job.priority, job.worker_id) == ("pending", 0, None)
        assert (job.started_at, job.completed_at) == (None, None)
        urgent = jobs.build_tile.using(priority=7).enqueue(**FILE, region="ne")
        assert urgent.priority == 7


# the order


def test_the_newest_run_comes_first(facts: Facts) -> None:
    """It was listed last: by age alone, it would have been last."""
    began = [(job.node or "")[:11] for job in facts.in_order]
    assert began == ["scan_source"] + [NEW] * 8 + [OLD] * 8


def test_higher_priorities_run_first_then_older_jobs(facts: Facts) -> None:
    downloads = [job for job in facts.in_order if job.type == "ingest_grib"]
    by_the_rule = sorted(downloads, key=lambda job: (-job.priority, job.created_at, job.id))
    assert [job.node for job in downloads] == [job.node for job in by_the_rule]
    assert [job.node for job in downloads] == [
        f"{run}/f00{n}" for run in (NEW, OLD) for n in (0, 1)
    ]


# the workflow


def test_a_scan_fans_out_to_the_files_it_finds(facts: Facts) -> None:
    """A download for each file; three tiles wait for each download."""
    types = {job.id: job.type for job in facts.jobs}
    assert {(types[child], types[parent]) for child, parent in facts.edges.items()} == {
        ("build_tile", "ingest_grib")
    }
    waited_for = Counter(facts.edges.values())
    assert set(waited_for) == {job.id for job in of_type(facts, "ingest_grib")}
    assert set(waited_for.values()) == {len(tiles.BOUNDS)}


def test_a_tile_is_built_after_its_download(facts: Facts) -> None:
    whole = {job.id: job for job in facts.jobs}
    for child, parent in facts.edges.items():
        began, ended = whole[child].started_at, whole[parent].completed_at
        assert began is not None
        assert ended is not None
        assert began >= ended
        shared = {key: whole[child].payload[key] for key in ("model_id", "run_id", "hour")}
        assert shared == whole[parent].payload


def test_every_tile_matches_the_forecast_servers_field(facts: Facts) -> None:
    assert set(facts.tiles) == {
        f"{model}/{run}/f{hour:03}/{region}.npz"
        for model, run, hour in FILES
        for region in tiles.BOUNDS
    }
    assert [path for path, right in facts.tiles.items() if not right] == []


def test_every_workflow_completes(facts: Facts) -> None:
    assert set(facts.statuses) == {"completed"}


# the workers


def test_workers_are_named_after_host_and_pid(facts: Facts) -> None:
    for worker in facts.while_held:
        assert worker["id"].startswith(f"{socket.gethostname()}-{worker['pid']}-")
    assert len({worker["pid"] for worker in facts.while_held}) == PROCESSES


def test_a_job_names_its_worker(facts: Facts) -> None:
    assert {job.worker_id for job in facts.running} == {row["id"] for row in facts.while_held}


def test_the_workers_table_shows_their_current_jobs(facts: Facts) -> None:
    for worker in facts.while_held:
        held = {job.id for job in facts.running if job.worker_id == worker["id"]}
        assert {job["id"] for job in worker["jobs"]} == held
        assert len(held) == worker["running"] == SLOTS
    assert facts.shown.count("ingest_grib") == PROCESSES * SLOTS


def test_the_workers_table_shows_their_heartbeats(facts: Facts) -> None:
    """They go on for those that live, and have ended for the one that was killed."""
    assert all(0 <= worker["beat_age"] < 15 for worker in facts.while_held)
    living = {worker["id"] for worker in facts.while_held} - {facts.killed["id"]}
    assert set(beaten_since(facts)) == living


def test_several_workers_shared_the_work(facts: Facts) -> None:
    """On one file, and no job was given to two of them."""
    assert len({job.worker_id for job in of_type(facts, "build_tile")}) > 2
    again = [job for job in facts.jobs if job.claim_no > 1]
    assert {job.id for job in again} == (
        {job.id for job in facts.orphans} | {job.id for job in facts.failed}
    )


def test_jobs_of_a_killed_worker_are_done_by_others(facts: Facts) -> None:
    states = {worker["id"]: worker["state"] for worker in facts.at_the_end}
    assert states[facts.killed["id"]] == "dead"
    assert len(facts.orphans) == SLOTS
    for job in facts.orphans:
        assert (job.status, job.attempts, job.claim_no) == ("completed", 1, 2)
        assert job.worker_id != facts.killed["id"]


def test_no_half_written_file_is_left(facts: Facts) -> None:
    assert facts.litter == []


# failures


def test_a_failure_keeps_its_traces(facts: Facts) -> None:
    [failed] = facts.failed
    assert failed.error == "HTTPError: HTTP Error 500: Internal Server Error"
    assert failed.completed_at is not None
    assert [failure.attempt for failure in facts.failures] == [3, 2, 1]
    for failure in facts.failures:
        assert (failure.trace or "").startswith("Traceback")
        assert "sources.download" in (failure.trace or "")


def test_a_failure_is_retried_until_the_last_attempt(facts: Facts) -> None:
    [failed] = facts.failed
    assert (failed.status, failed.attempts, failed.max_attempts) == ("failed", 3, 3)
    assert [failure.status for failure in facts.failures] == ["failed", "retrying", "retrying"]


def test_dependents_of_a_failure_are_cancelled_and_other_jobs_complete(facts: Facts) -> None:
    assert facts.status_with_failure == "failed"
    [failed] = facts.failed
    assert {facts.edges[job.id] for job in facts.dropped} == {failed.id}
    assert len(facts.dropped) == len(tiles.BOUNDS)


def test_a_retry_of_the_workflow_runs_only_missing_jobs(facts: Facts) -> None:
    assert facts.retried == 1 + len(tiles.BOUNDS)
    asked = {path: times for path, times in facts.downloads.items() if path.endswith(".grib2")}
    cut_off = {job.node for job in facts.orphans}
    for path, times in asked.items():
        node = path.split("/", 2)[2].removesuffix(".grib2")
        if path == "/ecmwf/20230125_12/f006.grib2":
            assert times == 4
        else:
            assert times == 1 or node in cut_off


# scans


def test_a_second_scan_of_the_same_runs_adds_nothing(facts: Facts) -> None:
    assert len(facts.jobs) == facts.before_second_scan + len(MODELS)
    found = {job.payload["model_id"]: job.result for job in facts.second_scans}
    assert found == {
        model: {"listed": sum(map(len, runs.values())), "new": 0} for model, runs in MODELS.items()
    }


def test_two_concurrent_scans_add_a_file_once(facts: Facts) -> None:
    """Two of gfs were started together: what one of them found, the other did not add."""
    scans = [job.result["new"] for job in of_type(facts, "scan_source") if of_gfs(job)]
    assert sorted(scans) == [0, 0, 6]


def of_gfs(job: Job) -> bool:
    return bool(job.payload["model_id"] == "gfs")


def test_a_malformed_listing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run's name becomes a path: it is checked."""
    with RemoteServer(lambda path, times: Answer(b'{"../../etc": [1]}')) as remote:
        monkeypatch.setattr(sources, "SOURCE", remote.url)
        with pytest.raises(ValueError, match="a run is named YYYYMMDD_HH"):
            sources.listing("hrrr")


# files and tiles


def test_a_download_that_is_cut_off_is_noticed() -> None:
    message = grib.encode(field_of("gfs", NEW, 3))
    grib.check(message)
    with pytest.raises(grib.BadGrib, match="cut off"):
        grib.check(message[:-100])
    with pytest.raises(grib.BadGrib, match="does not begin like"):
        grib.check(b"<html>404</html>")


def test_levels_are_means_of_four_neighbours(tmp_path: Path) -> None:
    field = np.arange(64, dtype=np.float32).reshape(8, 8)
    tile = tiles.make(field, "ne")
    assert tile.full.tolist() == field[:4, 4:].tolist()
    assert tile.half.tolist() == [[8.5, 10.5], [24.5, 26.5]]
    assert tile.quarter.tolist() == [[17.5]]
    with pytest.raises(ValueError, match="no region 'mars': there are ne, se, w"):
        tiles.make(field, "mars")


def test_a_file_is_written_atomically(tmp_path: Path) -> None:
    scratch, place = tmp_path / "scratch", tmp_path / "a" / "b.npz"
    for text in ("one", "two"):
        scratch.write_text(text)
        store.put(scratch, place)
        assert place.read_text() == text
    assert [path.name for path in place.parent.iterdir()] == ["b.npz"]
