"""Checks of failures: each class of the design's two lists, and manual retries."""

import itertools
from signal import SIGTERM
from typing import Any

from examples.media_manager.fakes import Limited, NoAnswer
from examples.media_manager.testbed import QUICK, MediaTestbed
from holdfast import Job


def run_with_answers(
    testbed: MediaTestbed, title: str, *answers: object
) -> tuple[Job, list[str], list[float]]:
    """Enrich a title with these first answers: returns its job at the end, the errors of its attempts,
    and the seconds between two requests."""
    testbed.provider.script(title, *answers)
    job = testbed.until(testbed.enrich(title))
    errors = [attempt.error or "" for attempt in reversed(testbed.observer.jobs.attempts(job.id))]
    times = [call.at for call in testbed.provider.requests_for(title)]
    return job, errors, [late - early for early, late in itertools.pairwise(times)]


# transient


def rate_limited(testbed: MediaTestbed) -> None:
    job, errors, waits = run_with_answers(testbed, "Limited", Limited(1))
    testbed.harness.check("429: retried", (job.status, job.attempts) == ("completed", 2))
    testbed.harness.check("... with this error", errors == ["Retry: TMDB API rate limit exceeded"])
    testbed.harness.check("... after the provider's Retry-After, not by the backoff", waits[0] >= 1)
    job, errors, waits = run_with_answers(testbed, "Auto", Limited(None))
    testbed.harness.check("429 without Retry-After: by the backoff", job.status == "completed")
    testbed.harness.check(
        "... with this error", errors == ["Unavailable: TMDB API rate limit exceeded"]
    )


def timed_out(testbed: MediaTestbed) -> None:
    job, errors, _ = run_with_answers(testbed, "Silent", NoAnswer())
    testbed.harness.check(
        "a network timeout is retried", (job.status, job.attempts) == ("completed", 2)
    )
    testbed.harness.check("... with this error", errors[0].startswith("ReadTimeout"))


def server_errors(testbed: MediaTestbed) -> None:
    job, _errors, waits = run_with_answers(testbed, "Shaky", 500, 503)
    testbed.harness.check("500 and 503: retried", (job.status, job.attempts) == ("completed", 3))
    testbed.harness.check(
        "each delay is twice the previous one", waits[0] >= 0.2 and waits[1] >= 0.4
    )


def unmounted_share(testbed: MediaTestbed) -> None:
    """The library is on a network share that is not always mounted."""
    shelf, away = testbed.harness.folder / "shelf", testbed.harness.folder / "away"
    testbed.until(testbed.enrich("Unmounted"), "completed")
    shelf.rename(away)
    about = testbed.about("Unmounted") | {"library_path": str(shelf)}
    id = testbed.create("publish-assets", about)["id"]
    job = testbed.until(id, "retrying")
    away.rename(shelf)
    right = (job.error or "").startswith("FileNotFoundError")
    testbed.harness.check("a share that is not mounted is retried", right)
    testbed.harness.check(
        "... and used when it is mounted", testbed.until(id).status == "completed"
    )


def lost_database(testbed: MediaTestbed) -> None:
    """The database is lost while a job runs, before it has saved anything."""
    gate = testbed.provider.hold("Locked")
    id = testbed.enrich("Locked")
    testbed.harness.until("it is under way", gate.reached.is_set)
    with testbed.without_database():
        gate.open()
        failed = "attempt 1 of enrich-metadata: OperationalError"
        testbed.harness.until("it has failed", lambda: failed in testbed.harness.logs())
    done = testbed.until(id)
    [failure] = testbed.observer.jobs.attempts(id)
    right = (failure.error or "").startswith("OperationalError")
    testbed.harness.check("a lost database connection is retried", right)
    testbed.harness.check("... and succeeds", (done.status, done.attempts) == ("completed", 2))


# permanent


def check_failed_once(testbed: MediaTestbed, id: str, error: str) -> None:
    job = testbed.until(id)
    right = (job.status, job.attempts) == ("failed", 1) and error in (job.error or "")
    testbed.harness.check(f"not retried: {job.error}", right)


def not_found(testbed: MediaTestbed) -> None:
    testbed.provider.script("Absent", 404)
    check_failed_once(testbed, testbed.enrich("Absent"), "NotFound: TMDB has no movie 'Absent'")
    testbed.harness.check(
        "the provider got one request", len(testbed.provider.requests_for("Absent")) == 1
    )


def deleted(testbed: MediaTestbed) -> None:
    about = testbed.about("Gone")
    testbed.client.delete(f"/api/v1/media/{about['entity_id']}")
    id = testbed.create("enrich-metadata", about)["id"]
    check_failed_once(testbed, id, f"EntityGone: there is no movie {about['entity_id']}")


def malformed(testbed: MediaTestbed) -> None:
    """A payload that our own route would refuse, but an older version may have stored."""
    job = testbed.observer.enqueue("enrich-metadata", {"entity_type": "movie", "entity_id": "many"})
    check_failed_once(testbed, job.id, "entity_id")


def permission_denied(testbed: MediaTestbed) -> None:
    testbed.until(testbed.enrich("Denied"), "completed")
    folder = testbed.harness.folder / "locked"
    folder.mkdir(mode=0o555)
    about = testbed.about("Denied") | {"library_path": str(folder)}
    check_failed_once(testbed, testbed.create("publish-assets", about)["id"], "PermissionError")


# by hand


def manual_retry(testbed: MediaTestbed) -> None:
    """After its last attempt a job fails until an operator retries it."""
    job, _errors, _ = run_with_answers(testbed, "Broken", 500, 500, 500)
    testbed.harness.check(
        "three attempts, then failed", (job.status, job.attempts) == ("failed", 3)
    )
    again = testbed.post(f"/api/v1/jobs/{job.id}/retry")
    state = again["status"], again["attempts"], again["error"]
    testbed.harness.check(
        "reset by hand: pending, no attempts, no error", state == ("pending", 0, None)
    )
    done = testbed.until(job.id)
    testbed.harness.check("... and done", (done.status, done.attempts) == ("completed", 1))


def worker_settings(testbed: MediaTestbed) -> None:
    """Stop the server with SIGTERM, and start it with other worker settings."""
    check = testbed.harness.check
    testbed.until(testbed.post(f"/webhooks/libraries/{testbed.films}", {}, 202)["id"], "completed")
    testbed.provider.script("Absent", 404)
    testbed.until(testbed.enrich("Absent"), "failed")
    for job in [testbed.observer.enqueue("enrich-metadata", {"entity_id": n}) for n in range(10)]:
        testbed.until(job.id, "failed")  # for the figures
    check(
        "SIGTERM ends the server in order", testbed.stop() in (0, -SIGTERM)
    )  # uvicorn ends by the signal
    changed = {"timeout": 600, "maxRetries": 1, "pollInterval": 250}
    testbed.set(worker=QUICK | changed)
    testbed.start()
    system = testbed.get("/api/v1/system")
    obeyed = {"timeout": 0.6, "max_attempts": 1, "poll_interval": 0.25}
    check("the worker settings apply", obeyed.items() <= system["settings"].items())
    days = {status: age / 86400 for status, age in system["retention"].items()}
    check(
        "completed jobs stay 30 days, failed ones 90",
        (days["completed"], days["failed"]) == (30, 90),
    )
    testbed.provider.hold("Hung")
    job = testbed.until(testbed.enrich("Hung"))
    check("a hanging job ends at its timeout", "TimeoutError" in (job.error or ""))
    check("... with one attempt if maxRetries is 1", (job.status, job.attempts) == ("failed", 1))


def settled_health_checks(testbed: MediaTestbed) -> dict[str, Any] | None:
    """Return the health checks, once no worker is silent and none reports a stuck job. A worker reports
    the end of a stuck job with its next heartbeat."""
    checks = {check["name"]: check for check in testbed.get("/api/v1/health")["checks"]}
    return checks if all(checks[name]["ok"] for name in ("silent", "workers", "stuck")) else None


def statistics(testbed: MediaTestbed) -> None:
    """Check the depth, average time and failure rate of each task, and the health checks. A stopped
    worker has written all its figures."""
    check = testbed.harness.check
    stats = testbed.get("/api/v1/stats")
    depth = {queue["name"]: queue["depth"] for queue in stats["queues"]}
    check("the depth of each queue is shown", depth["default"] == stats["jobs"]["pending"])
    tasks = stats["by_task"]
    for type in ("scan-library", "enrich-metadata", "publish-assets", "sync-player"):
        check(f"{type}: average time", 0 < tasks[type]["run"]["average"] < 5)
    enrich, sync = tasks["enrich-metadata"], tasks["sync-player"]
    rate = enrich["failed"] / enrich["finished"]
    check("failure rate of each task", enrich["failure_rate"] == rate > 0 == sync["failure_rate"])
    text = testbed.client.get("/metrics").text
    check(
        "the figures are exported to Prometheus",
        'holdfast_run_seconds{task="enrich-metadata"' in text,
    )
    checks = testbed.harness.until(
        "all killed servers are declared dead, and the stuck job has ended",
        lambda: settled_health_checks(testbed),
    )
    bad = [name for name, check in checks.items() if not check["ok"]]
    check("more than 5 % have failed: not healthy, with the reason", bad == ["failures"])
    check("... by the threshold of the design", checks["failures"]["threshold"] == 0.05)
    check("/health answers 503", testbed.client.get("/health").status_code == 503)
    well = {"waiting", "progress", "workers", "silent", "stuck", "spread"}
    check("queues and workers are checked: " + ", ".join(sorted(well)), well <= set(checks))
    check("a lenient threshold is met", testbed.observer.health(failure_rate=1.0).ok)
    missing = testbed.observer.health(failure_rate=1.0, expected_workers=2)
    check("a missing worker is noticed", not missing.ok)
