"""The media manager, end to end: a real server that is killed and started again, on both engines."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from examples.harness import Harness
from examples.media_manager import checks, failure_checks, store
from examples.media_manager.settings import (
    Level,
    Phases,
    Settings,
    WorkerConfig,
    inherited,
    to_priority,
)
from examples.media_manager.testbed import OFF, MediaTestbed, open_testbed
from tests.support import audit
from tests.support.server import PostgresServer


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def testbed(request: pytest.FixtureRequest) -> Iterator[MediaTestbed]:
    """A library is there, priorities were tried, and the server was killed in the middle of a phase."""
    with Harness("media-manager") as harness:
        url = f"sqlite:///{harness.folder}/media.db"
        if request.param == "postgres":
            server: PostgresServer = request.getfixturevalue("server")
            url = server.create_database()
        with open_testbed(harness, url) as testbed:
            for step in (checks.prepare, checks.priorities, checks.crash_recovery):
                step(testbed)
            yield testbed


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """As in other tests, but once for the module: its testbed serves all of its tests."""
    yield
    assert audit.opened == []
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("holdfast")]
    assert left == [], f"threads left running: {left}"


def shown(testbed: MediaTestbed, *sentences: str) -> None:
    assert set(sentences) <= set(testbed.harness.checks)


# settings


def test_the_workers_defaults_match_the_design() -> None:
    config = WorkerConfig()
    assert config.model_dump(by_alias=True) == {
        "concurrency": 4,
        "pollInterval": 1000,
        "timeout": 300_000,
        "retryDelay": 5000,
        "retryMultiplier": 2,
        "maxRetries": 3,
    }
    assert [config.backoff.after(attempts) for attempts in (1, 2, 3)] == [5, 10, 20]


def test_delay_and_multiplier_can_be_changed() -> None:
    config = WorkerConfig(retry_delay=1000, retry_multiplier=3)
    assert [config.backoff.after(attempts) for attempts in (1, 2, 3)] == [1, 3, 9]


def test_a_misspelt_setting_is_refused() -> None:
    with pytest.raises(ValidationError, match="concurency"):
        Settings.model_validate({"worker": {"concurency": 8}})
    with pytest.raises(ValidationError, match="concurrency"):
        Settings.model_validate({"worker": {"concurrency": 0}})


def test_the_priority_levels_match_the_design() -> None:
    assert {level.name: level.value for level in Level} == {
        "CRITICAL": 1,
        "USER": 2,
        "WEBHOOK": 3,
        "NORMAL": 5,
        "BACKGROUND": 7,
    }


def test_priority_one_is_the_highest_of_ten() -> None:
    ours = [to_priority(level) for level in range(1, 11)]
    assert ours == sorted(ours, reverse=True)
    assert min(ours) == 0  # what has no priority goes last
    for level in (0, 11):
        with pytest.raises(ValueError, match="from 1"):
            to_priority(level)


def test_manual_jobs_are_critical_and_automatic_jobs_are_normal() -> None:
    assert (inherited(True), inherited(False)) == (Level.CRITICAL, Level.NORMAL)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (True, True, False)),
        ({"publishing": {"chainToSync": True}}, (True, True, True)),
        ({"scanning": {"chainToEnrich": False}}, (False, True, False)),
        ({"enrichment": {"enabled": False}}, (False, True, False)),
        ({"enrichment": {"chainToPublish": False}}, (True, False, False)),
        ({"publishing": {"enabled": False, "chainToSync": True}}, (True, False, True)),
        ({"publishing": {"chainToSync": True}, "syncing": {"enabled": False}}, (True, True, False)),
    ],
)
def test_two_switches_stand_between_a_phase_and_the_next(
    given: dict, expected: tuple[bool, bool, bool]
) -> None:
    phases = Phases.model_validate(given)
    assert (phases.then_enrich(), phases.then_publish(), phases.then_sync()) == expected


# the story


def test_a_library_and_its_scans_are_one_transaction(testbed: MediaTestbed) -> None:
    shown(testbed, "a library and its hourly scan are committed together")
    checks.transactional_enqueue(testbed)


def test_jobs_run_by_priority_and_equal_ones_in_order(testbed: MediaTestbed) -> None:
    shown(testbed, "1 runs before 2, 3, 5 and 7; equals in the order made")


def test_a_chain_survives_kill_9_in_the_middle_of_a_phase(testbed: MediaTestbed) -> None:
    shown(
        testbed, "killed with -9 in the middle of a phase, the chain is completed after a restart"
    )
    shown(testbed, "the crash spent no attempt")


def test_no_job_is_duplicated(testbed: MediaTestbed) -> None:
    shown(
        testbed,
        "each title went through each phase in one job, no more",
        "the player was notified once of each",
        "each picture is beside its film once",
        "each asset is one row",
    )


def test_payloads_refer_to_rows(testbed: MediaTestbed) -> None:
    shown(testbed, "payloads refer to rows, and are small")


def test_phases_are_switched_without_a_restart(testbed: MediaTestbed) -> None:
    checks.phase_switches(testbed)


def test_a_scan_is_followed_only_if_both_switches_are_on(testbed: MediaTestbed) -> None:
    shown(testbed, "with chainToEnrich off, no job follows a scan")
    testbed.set(phases={"enrichment": {"enabled": False}})
    (testbed.harness.folder / "films" / "New here (2001).mkv").touch()
    job = testbed.post(f"/webhooks/libraries/{testbed.films}", {}, 202)
    done = testbed.until(job["id"], "completed")
    testbed.set(phases=OFF)
    assert done.result == {"found": 3, "new": 1}
    assert "enrichment is off, the chain ends here" in testbed.log(done)
    assert testbed.jobs(after=done) == []
    (testbed.harness.folder / "films" / "New here (2001).mkv").unlink()
    testbed.client.delete(f"/api/v1/media/{testbed.about('New here')['entity_id']}")


def test_following_jobs_inherit_the_priority(testbed: MediaTestbed) -> None:
    checks.inheritance(testbed)


def test_the_concurrency_setting_is_obeyed(testbed: MediaTestbed) -> None:
    checks.concurrency_limit(testbed)


def test_the_three_events_have_the_shape_of_the_design(testbed: MediaTestbed) -> None:
    checks.events(testbed)


def test_create_list_cancel_and_retry_over_http(testbed: MediaTestbed) -> None:
    checks.requests(testbed)


def test_scheduled_jobs_run_automatically(testbed: MediaTestbed) -> None:
    checks.schedules(testbed)


def test_a_disabled_phase_is_not_scanned_hourly(testbed: MediaTestbed) -> None:
    testbed.set(phases={"scanning": {"enabled": False}})
    row = testbed.observer.schedules.get("scan-library", f"library:{testbed.films}")
    before = row.last_run_at
    testbed.post(f"/api/v1/schedules/{row.id}/run")
    ran = lambda: testbed.observer.schedules.get(row.type, row.key).last_run_at != before  # noqa: E731
    testbed.harness.until("it has run", ran)
    testbed.set(phases=OFF)
    assert testbed.observer.jobs.get(row.id).result == {"found": 0, "new": 0}


# a job


def test_a_job_has_the_fields_of_the_design(testbed: MediaTestbed) -> None:
    payload = testbed.about("Manual") | {"manual": True}
    with testbed.paused():
        made = testbed.create("enrich-metadata", payload, 1)
        waiting = testbed.get(f"/api/v1/jobs/{made['id']}")
    assert (waiting["status"], waiting["worker_id"], waiting["started_at"]) == (
        *("pending", None),
        None,
    )
    testbed.until(made["id"])
    job = testbed.get(f"/api/v1/jobs/{made['id']}")
    assert (job["type"], job["status"], job["payload"]) == (
        *("enrich-metadata", "completed"),
        payload,
    )
    assert (job["entity_type"], job["entity_id"]) == ("movie", payload["entity_id"])
    assert (job["attempts"], job["max_attempts"], job["error"]) == (1, 3, None)
    assert job["result"] == {"assetsDownloaded": 5, "metadataUpdated": True}
    assert job["created_at"] <= job["started_at"] <= job["completed_at"]
    assert (job["progress"], job["message"]) == (100, "Enrichment complete")
    assert str(testbed.process.pid) in job["worker_id"]


def test_a_failed_job_is_retrying_and_then_runs_again(testbed: MediaTestbed) -> None:
    testbed.provider.script("Shown", 500)
    job = testbed.create("enrich-metadata", testbed.about("Shown"))
    told = testbed.messages(job["follow"])
    done = testbed.until(job["id"])
    [failure] = testbed.observer.jobs.attempts(job["id"])
    assert failure.error == "Unavailable: TMDB answered 500 when asked for movie 'Shown'"
    assert (done.status, done.attempts, done.error) == ("completed", 2, None)
    retrying = [one["data"] for one in told if one["event"] == "job:retrying"]
    for one in retrying:  # where the socket was quick enough
        assert (one["attempts"], one["max_attempts"], one["status"]) == (1, 3, "retrying")
        assert one["run_at"]


def test_completed_jobs_are_kept_30_days_and_failed_ones_90(testbed: MediaTestbed) -> None:
    done = testbed.until(testbed.enrich("Auto"), "completed")
    testbed.provider.script("Unshown", 404)
    failed = testbed.until(testbed.enrich("Unshown"), "failed")
    kept = [job.keep_until - job.completed_at for job in (done, failed)]  # type: ignore[operator]
    assert kept == [timedelta(days=30), timedelta(days=90)]


def test_large_pictures_are_streamed_to_the_cache(testbed: MediaTestbed) -> None:
    testbed.provider.size = 3_000_000
    try:
        testbed.until(testbed.enrich("Select"), "completed")
    finally:
        testbed.provider.size = 2000
    with testbed.db.begin() as tx:
        files = store.assets_of(tx, testbed.about("Select")["entity_id"])
    assert [(testbed.cache / file).stat().st_size for file in files.values()] == [3_000_000] * 5
    assert [file.name for file in testbed.cache.iterdir() if file.suffix == ".part"] == []


def test_enrichments_are_throttled(testbed: MediaTestbed) -> None:
    [limit] = [one for one in testbed.get("/api/v1/limits")["limits"] if "enrich" in str(one)]
    assert (limit["rate"], limit["tasks"]) == ("40/10s", ["enrich-metadata"])


# transient errors


def test_a_rate_limited_request_is_retried_after_the_providers_delay(testbed: MediaTestbed) -> None:
    failure_checks.rate_limited(testbed)


def test_a_network_timeout_is_retried(testbed: MediaTestbed) -> None:
    failure_checks.timed_out(testbed)


def test_server_errors_of_the_provider_are_retried_with_growing_delays(
    testbed: MediaTestbed,
) -> None:
    failure_checks.server_errors(testbed)


def test_a_share_that_is_not_mounted_is_retried(testbed: MediaTestbed) -> None:
    failure_checks.unmounted_share(testbed)


def test_a_lost_database_connection_is_retried(testbed: MediaTestbed) -> None:
    failure_checks.lost_database(testbed)


# permanent errors


def test_a_missing_title_is_not_retried(testbed: MediaTestbed) -> None:
    failure_checks.not_found(testbed)


def test_a_deleted_entity_is_not_retried(testbed: MediaTestbed) -> None:
    failure_checks.deleted(testbed)


def test_a_malformed_payload_is_not_retried(testbed: MediaTestbed) -> None:
    failure_checks.malformed(testbed)


def test_a_denied_permission_is_not_retried(testbed: MediaTestbed) -> None:
    failure_checks.permission_denied(testbed)


# by hand, and with other settings: last, since the server is started again


def test_a_permanently_failed_job_is_retried_by_hand(testbed: MediaTestbed) -> None:
    failure_checks.manual_retry(testbed)


def test_the_page_is_served_under_a_strict_policy(testbed: MediaTestbed) -> None:
    for name, kind in (("", "html"), ("library.js", "javascript"), ("library.css", "css")):
        answer = testbed.client.get(f"/library/{name}", headers={"X-Api-Key": ""})
        assert answer.status_code == 200
        assert kind in answer.headers["content-type"]
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'")
        assert "unsafe" not in policy
    assert testbed.client.get("/library/server.py").status_code == 404
    page = Path(checks.__file__).parent / "page"
    assert "innerHTML" not in (page / "library.js").read_text()


def test_timeout_attempts_and_poll_interval_are_set_in_the_file(testbed: MediaTestbed) -> None:
    failure_checks.worker_settings(testbed)


def test_depth_average_time_failure_rate_and_health(testbed: MediaTestbed) -> None:
    failure_checks.statistics(testbed)
