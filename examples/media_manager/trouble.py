"""What is proved of failures: each class of the design's two lists, and what is done by hand."""

import itertools
from signal import SIGTERM
from typing import Any

from examples.media_manager.fakes import Limited, Silent
from examples.media_manager.scene import QUICK, Scene
from holdfast import Job


def recovers(scene: Scene, title: str, *answers: object) -> tuple[Job, list[str], list[float]]:
    """A title whose first answers are these: its job at the end, the errors on the way, and the seconds
    between two questions."""
    scene.provider.script(title, *answers)
    job = scene.until(scene.enrich(title))
    errors = [attempt.error or "" for attempt in reversed(scene.look.jobs.attempts(job.id))]
    times = [call.at for call in scene.provider.asked(title)]
    return job, errors, [late - early for early, late in itertools.pairwise(times)]


# transient


def rate_limited(scene: Scene) -> None:
    job, errors, waits = recovers(scene, "Limited", Limited(1))
    scene.stage.prove("429: tried again", (job.status, job.attempts) == ("completed", 2))
    scene.stage.prove("... it says so", errors == ["Retry: TMDB API rate limit exceeded"])
    scene.stage.prove("... when the provider said, not by the backoff", waits[0] >= 1)
    job, errors, waits = recovers(scene, "Auto", Limited(None))
    scene.stage.prove("429 without Retry-After: by the backoff", job.status == "completed")
    scene.stage.prove("... it says so", errors == ["Unavailable: TMDB API rate limit exceeded"])


def timed_out(scene: Scene) -> None:
    job, errors, _ = recovers(scene, "Silent", Silent())
    scene.stage.prove(
        "a network timeout is tried again", (job.status, job.attempts) == ("completed", 2)
    )
    scene.stage.prove("... it says so", errors[0].startswith("ReadTimeout"))


def shaky(scene: Scene) -> None:
    job, _errors, waits = recovers(scene, "Shaky", 500, 503)
    scene.stage.prove("500 and 503: tried again", (job.status, job.attempts) == ("completed", 3))
    scene.stage.prove("each wait is twice the one before", waits[0] >= 0.2 and waits[1] >= 0.4)


def unmounted(scene: Scene) -> None:
    """The library is on a share that comes and goes."""
    shelf, away = scene.stage.folder / "shelf", scene.stage.folder / "away"
    scene.until(scene.enrich("Unmounted"), "completed")
    shelf.rename(away)
    about = scene.about("Unmounted") | {"library_path": str(shelf)}
    id = scene.create("publish-assets", about)["id"]
    job = scene.until(id, "retrying")
    away.rename(shelf)
    right = (job.error or "").startswith("FileNotFoundError")
    scene.stage.prove("a share that is not mounted is waited for", right)
    scene.stage.prove("... and then used", scene.until(id).status == "completed")


def disconnected(scene: Scene) -> None:
    """The database goes away under a job, before it has saved anything."""
    gate = scene.provider.hold("Locked")
    id = scene.enrich("Locked")
    scene.stage.until("it is under way", gate.reached.is_set)
    with scene.cut_off():
        gate.open()
        failed = "attempt 1 of enrich-metadata: OperationalError"
        scene.stage.until("it has failed", lambda: failed in scene.stage.logs())
    done = scene.until(id)
    [failure] = scene.look.jobs.attempts(id)
    right = (failure.error or "").startswith("OperationalError")
    scene.stage.prove("a lost database connection is tried again", right)
    scene.stage.prove("... and succeeds", (done.status, done.attempts) == ("completed", 2))


# permanent


def failed_for_good(scene: Scene, id: str, error: str) -> None:
    job = scene.until(id)
    right = (job.status, job.attempts) == ("failed", 1) and error in (job.error or "")
    scene.stage.prove(f"not tried again: {job.error}", right)


def not_found(scene: Scene) -> None:
    scene.provider.script("Absent", 404)
    failed_for_good(scene, scene.enrich("Absent"), "NotFound: TMDB has no movie 'Absent'")
    scene.stage.prove("the provider was asked once", len(scene.provider.asked("Absent")) == 1)


def deleted(scene: Scene) -> None:
    about = scene.about("Gone")
    scene.client.delete(f"/api/v1/media/{about['entity_id']}")
    id = scene.create("enrich-metadata", about)["id"]
    failed_for_good(scene, id, f"EntityGone: there is no movie {about['entity_id']}")


def malformed(scene: Scene) -> None:
    """What our own route would refuse, but an older version may have stored."""
    job = scene.look.enqueue("enrich-metadata", {"entity_type": "movie", "entity_id": "many"})
    failed_for_good(scene, job.id, "entity_id")


def denied(scene: Scene) -> None:
    scene.until(scene.enrich("Denied"), "completed")
    folder = scene.stage.folder / "locked"
    folder.mkdir(mode=0o555)
    about = scene.about("Denied") | {"library_path": str(folder)}
    failed_for_good(scene, scene.create("publish-assets", about)["id"], "PermissionError")


# by hand


def reset(scene: Scene) -> None:
    """Attempts are spent: somebody has to look, and to let it run again."""
    job, _errors, _ = recovers(scene, "Broken", 500, 500, 500)
    scene.stage.prove("three attempts, then failed", (job.status, job.attempts) == ("failed", 3))
    again = scene.post(f"/api/v1/jobs/{job.id}/retry")
    state = again["status"], again["attempts"], again["error"]
    scene.stage.prove(
        "reset by hand: pending, no attempts, no error", state == ("pending", 0, None)
    )
    done = scene.until(job.id)
    scene.stage.prove("... and done", (done.status, done.attempts) == ("completed", 1))


def settled(scene: Scene) -> None:
    """Stopped as a deployment does it, and started with other settings of the worker."""
    prove = scene.stage.prove
    scene.until(scene.post(f"/webhooks/libraries/{scene.films}", {}, 202)["id"], "completed")
    scene.provider.script("Absent", 404)
    scene.until(scene.enrich("Absent"), "failed")
    for job in [scene.look.enqueue("enrich-metadata", {"entity_id": n}) for n in range(10)]:
        scene.until(job.id, "failed")  # for the figures
    prove("SIGTERM ends it well", scene.stop() in (0, -SIGTERM))  # uvicorn ends by the signal
    changed = {"timeout": 600, "maxRetries": 1, "pollInterval": 250}
    scene.set(worker=QUICK | changed)
    scene.start()
    told = scene.get("/api/v1/system")
    obeyed = {"timeout": 0.6, "max_attempts": 1, "poll_interval": 0.25}
    prove("the settings of the worker are obeyed", obeyed.items() <= told["settings"].items())
    days = {status: age / 86400 for status, age in told["retention"].items()}
    prove(
        "completed jobs stay 30 days, failed ones 90",
        (days["completed"], days["failed"]) == (30, 90),
    )
    scene.provider.hold("Hung")
    job = scene.until(scene.enrich("Hung"))
    prove("a job that hangs ends with its timeout", "TimeoutError" in (job.error or ""))
    prove("... with one attempt if maxRetries is 1", (job.status, job.attempts) == ("failed", 1))


def checked(scene: Scene) -> dict[str, Any] | None:
    """The checks, once nobody is silent any more, and the worker has told that what hung has ended: it
    may have said that it is past its timeout, and it says the next thing a heartbeat later."""
    checks = {check["name"]: check for check in scene.get("/api/v1/health")["checks"]}
    return checks if all(checks[name]["ok"] for name in ("silent", "workers", "stuck")) else None


def figures(scene: Scene) -> None:
    """Depth, average time and failure rate of each task; and whether all is well. A worker that was
    stopped has told all its figures."""
    prove = scene.stage.prove
    told = scene.get("/api/v1/stats")
    depth = {queue["name"]: queue["depth"] for queue in told["queues"]}
    prove("the depth of each queue is told", depth["default"] == told["jobs"]["pending"])
    tasks = told["by_task"]
    for type in ("scan-library", "enrich-metadata", "publish-assets", "sync-player"):
        prove(f"{type}: average time", 0 < tasks[type]["run"]["average"] < 5)
    enrich, sync = tasks["enrich-metadata"], tasks["sync-player"]
    rate = enrich["failed"] / enrich["finished"]
    prove("failure rate of each task", enrich["failure_rate"] == rate > 0 == sync["failure_rate"])
    text = scene.client.get("/metrics").text
    prove("the same for Prometheus", 'holdfast_run_seconds{task="enrich-metadata"' in text)
    checks = scene.stage.until(
        "all killed servers are known to be dead, and what hung to have ended",
        lambda: checked(scene),
    )
    bad = [name for name, check in checks.items() if not check["ok"]]
    prove("more than 5 % have failed: not healthy, and it says why", bad == ["failures"])
    prove("... by the threshold of the design", checks["failures"]["threshold"] == 0.05)
    prove("a monitor is told 503", scene.client.get("/health").status_code == 503)
    well = {"waiting", "progress", "workers", "silent", "stuck", "spread"}
    prove("queue and workers are looked at: " + ", ".join(sorted(well)), well <= set(checks))
    prove("a lenient threshold is met", scene.look.health(failure_rate=1.0).ok)
    missing = scene.look.health(failure_rate=1.0, expected_workers=2)
    prove("a worker too few is noticed", not missing.ok)
