"""End-to-end checks of the media manager, one function for each subject: for `python -m` and the tests.

`prepare` comes first, with a worker that has one slot, which shows the order of priorities.
`crash_recovery` kills the server in the middle of a phase, and starts it again with four slots.
Failures are in failure_checks.py.
"""

from collections import Counter
from functools import partial

from examples.media_manager import store
from examples.media_manager.settings import to_priority
from examples.media_manager.testbed import CHAINED, OFF, QUICK, MediaTestbed

TITLES = tuple(
    f"{title} (1972)"
    for title in (
        *("Verify", "Auto", "Hook", "Select", "Manual", "Later", "Slow", "Urgent"),
        *("Wide 1", "Wide 2", "Wide 3", "Wide 4", "Wide 5", "Wide 6"),
        *("Limited", "Unsaid", "Silent", "Shaky", "Broken", "Absent", "Gone", "Locked", "Denied"),
        *("Unmounted", "Watched", "Cancelled", "Bare", "Switched", "Hung", "Shown", "Unshown"),
    )
)


def prepare(testbed: MediaTestbed) -> None:
    """Add a library with its hourly scan, which runs immediately."""
    check = testbed.harness.check
    shelf = testbed.library("shelf", *TITLES)
    added = testbed.post("/api/v1/libraries", {"path": str(shelf)}, 201)
    scan = testbed.observer.schedules.get("scan-library", f"library:{added['id']}")
    testbed.harness.until(
        "the shelf is scanned", lambda: len(testbed.get("/api/v1/media")) == len(TITLES)
    )
    check("a library and its hourly scan are committed together", scan.entity == ("library", 1))
    check("with chainToEnrich off, no job follows a scan", not testbed.jobs())


def priorities(testbed: MediaTestbed) -> None:
    """With one slot, the provider sees the order of jobs."""
    order = [("Verify", 7), ("Auto", 5), ("Hook", 3), ("Select", 2), ("Manual", 1), ("Later", 5)]
    with testbed.paused():
        made = [testbed.enrich(title, level) for title, level in order]
        depth = testbed.get("/api/v1/stats")["jobs"]["pending"]
        testbed.harness.check("queue depth is shown", depth == len(order))
    for id in made:
        testbed.until(id, "completed")
    queries = [call.path.partition("?")[2] for call in testbed.provider.calls if "?" in call.path]
    expected = ["Manual", "Select", "Hook", "Auto", "Later", "Verify"]
    testbed.harness.check(
        "1 runs before 2, 3, 5 and 7; equals in the order made", queries == expected
    )


def crash_recovery(testbed: MediaTestbed) -> None:
    """kill -9 in the middle of a phase: the chain completes, and nothing happens twice."""
    check, provider = testbed.harness.check, testbed.provider
    testbed.set(phases=CHAINED)
    gate = provider.hold("Stalker")
    folder = testbed.library("films", "Roadside", "Stalker (1979)")
    before = testbed.jobs()
    testbed.films = testbed.post("/api/v1/libraries", {"path": str(folder)}, 201)["id"]
    testbed.harness.until("an enrichment is in the middle of a picture", gate.reached.is_set)
    testbed.kill()
    testbed.set(worker=QUICK | {"concurrency": 4})
    gate.open()
    testbed.start()
    testbed.harness.until("the player was notified of both", lambda: len(provider.refreshed) == 2)
    testbed.until_idle()
    check("killed with -9 in the middle of a phase, the chain is completed after a restart")
    made = Counter(job.type for job in testbed.jobs(after=before[0]))
    once_each = {"enrich-metadata": 2, "publish-assets": 2, "sync-player": 2}
    check("each title went through each phase in one job, no more", made == once_each)
    wanted = [str(folder / "Roadside"), str(folder / "Stalker (1979).mkv")]
    check("the player was notified once of each", sorted(provider.refreshed.values()) == wanted)
    check("each picture is beside its film once", len(list(folder.glob("*.png"))) == 10)
    stalker = testbed.about("Stalker")
    with testbed.db.begin() as tx:
        check("each asset is one row", len(store.assets_of(tx, stalker["entity_id"])) == 5)
    [job] = testbed.jobs("enrich-metadata", entity=("movie", stalker["entity_id"]))
    check("the crash spent no attempt", (job.attempts, job.crashes) == (1, 0))
    payloads = [testbed.observer.jobs.get(job.id).payload for job in testbed.jobs(after=before[0])]
    check("payloads refer to rows, and are small", max(len(str(one)) for one in payloads) < 300)


def phase_switches(testbed: MediaTestbed) -> None:
    """Both switches, and the log that says where the chain ended."""
    check = testbed.harness.check
    for phases, sentence in (
        ({"enrichment": {"chainToPublish": False}}, "chainToPublish off: enriched, not published"),
        ({"publishing": {"enabled": False}}, "publishing disabled: enriched, not published"),
    ):
        testbed.set(phases=phases)
        job = testbed.until(testbed.enrich("Switched"), "completed")
        said = "publishing is off, the chain ends here" in testbed.log(job)
        check(sentence, said and not testbed.jobs(after=job))
    enriched = ["enrich-metadata", "publish-assets"]
    for phases, expected in (
        ({}, enriched),
        (CHAINED | {"syncing": {"enabled": False}}, enriched),
        (CHAINED, [*enriched, "sync-player"]),
    ):
        testbed.set(phases=phases)
        job = testbed.until(testbed.enrich("Switched"), "completed")
        testbed.until_idle()
        made = [*(one.type for one in testbed.jobs(after=job)), job.type]
        check(f"with {phases or 'the defaults'}: {', '.join(expected)}", sorted(made) == expected)
    testbed.set(phases=OFF)


def inheritance(testbed: MediaTestbed) -> None:
    """Jobs that follow a manual job inherit its priority; automatic jobs are normal."""
    testbed.set(phases=CHAINED)
    for manual, level in ((True, 1), (False, 5)):
        job = testbed.until(testbed.enrich("Bare", 2, manual), "completed")
        testbed.until_idle()
        followed = testbed.jobs(after=job)
        right = [one.priority for one in followed] == [to_priority(level)] * 2
        testbed.harness.check(f"manual={manual}: what follows has priority {level}", right)
        right = all(
            testbed.observer.jobs.get(one.id).payload["manual"] is manual for one in followed
        )
        testbed.harness.check("... and passes this on to the next job", right)
    testbed.set(phases=OFF)


def concurrency_limit(testbed: MediaTestbed) -> None:
    """Four jobs run concurrently, not five, and a slow job does not delay others."""
    check, provider = testbed.harness.check, testbed.provider
    titles = [f"Wide {n}" for n in range(1, 7)]
    gates = [provider.hold(title) for title in titles]
    provider.peak = 0
    jobs = [testbed.enrich(title) for title in titles]
    testbed.harness.until("four are in flight", lambda: provider.in_flight == 4)
    counts = testbed.get("/api/v1/jobs?status=running&type=enrich")["stats"]
    check("four run, two wait", (counts["running"], counts["pending"]) == (4, 2))
    for gate in gates:
        gate.open()
    for id in jobs:
        testbed.until(id, "completed")
    check("never more than four ran concurrently", provider.peak == 4)
    slow = provider.hold("Slow")
    held = testbed.enrich("Slow", 7)
    testbed.harness.until("a slow one runs", slow.reached.is_set)
    testbed.until(testbed.enrich("Urgent", 1), "completed")
    still = testbed.observer.jobs.get(held).status == "running"
    check("a running job does not hold up a more urgent one", still)
    slow.open()
    testbed.until(held, "completed")


def events(testbed: MediaTestbed) -> None:
    """The three events, as a browser receives them."""
    check = testbed.harness.check
    gate = testbed.provider.hold("Watched")
    job = testbed.create("enrich-metadata", testbed.about("Watched"), 1)
    messages = testbed.messages(job["follow"], gate)
    halfway = {"status": "running", "progress": 50, "message": "Downloading selected assets"}
    complete = messages[-1]["data"]
    identity = {"job_id": job["id"], "type": "enrich-metadata"}
    expected = {"event": "job:progress", "data": identity | halfway}
    right = any(expected.items() <= one.items() for one in messages)
    check("job:progress has a percentage and a message", right)
    result = {"assetsDownloaded": 5, "metadataUpdated": True}
    check("job:complete has the result", complete == identity | {"result": result})
    check("... and is the last", messages[-1]["event"] == "job:complete")
    testbed.provider.script("Unsaid", 404)
    failed = testbed.create("enrich-metadata", testbed.about("Unsaid"))
    [last] = [one for one in testbed.messages(failed["follow"]) if one["event"] == "job:failed"]
    error = "NotFound: TMDB has no movie 'Unsaid': content not found"
    failure = identity | {"job_id": failed["id"], "error": error, "attempts": 1, "max_attempts": 3}
    check("job:failed has the error, and the attempts", last["data"] == failure)


def requests(testbed: MediaTestbed) -> None:
    """Create, list, cancel and retry jobs with the API key."""
    check = testbed.harness.check
    body = {"type": "enrich-metadata", "priority": 1}
    gate = testbed.provider.hold("Cancelled")
    job = testbed.create("enrich-metadata", testbed.about("Cancelled") | {"manual": True}, 1)
    testbed.harness.until("it is in flight", gate.reached.is_set)
    check("a job is created with priority 1", job["priority"] == 1)
    check("... stored inverted, as 9", testbed.observer.jobs.get(job["id"]).priority == 9)
    listed = testbed.get("/api/v1/jobs?status=running&type=enrich")["jobs"]
    check("?status=running&type=enrich finds the job", [one["id"] for one in listed] == [job["id"]])
    check("... with the worker that runs it", bool(listed[0]["worker_id"]))
    testbed.client.delete(f"/api/v1/jobs/{job['id']}")
    check("DELETE cancels the job", testbed.until(job["id"]).status == "cancelled")
    gate.open()
    testbed.post(f"/api/v1/jobs/{job['id']}/retry")
    check("retry runs it again", testbed.until(job["id"]).status == "completed")
    for wrong in (
        body | {"priority": 0},
        body | {"type": "no-such-task"},
        body | {"payload": {"entity_type": "movie", "entity_id": "many"}},
        body | {"colour": "red"},
    ):
        answer = testbed.client.post("/api/v1/jobs", json=wrong)
        check(f"refused: {answer.json()['detail']!s:.60}", answer.status_code == 422)
    wrong_key = {"X-Api-Key": "wrong"}
    for method, path in (("POST", "/api/v1/jobs"), ("GET", "/api/v1/jobs"), ("GET", "/metrics")):
        answer = testbed.client.request(method, path, headers=wrong_key, json=body)
        check(f"{method} {path} needs the key", answer.status_code == 401)


def schedules(testbed: MediaTestbed) -> None:
    """Automatic jobs: the hourly scan, a webhook's scan, and two that maintain the cache."""
    check, films = testbed.harness.check, testbed.films
    with testbed.paused():
        first, second = (testbed.post(f"/webhooks/libraries/{films}", {}, 202) for _ in "ab")
        check("a webhook's scan has priority 3", first["priority"] == 3)
        check("... stored as 7", testbed.observer.jobs.get(first["id"]).priority == 7)
        check("webhooks in a row are one scan", first["id"] == second["id"])
    check("it scans", testbed.until(first["id"]).result == {"found": 2, "new": 0})
    rows = {(row.type, row.key): row for row in testbed.observer.schedules.list()}
    recurring = {type for type, _ in rows}
    check(
        "scans, verify-cache and cleanup-orphans recur",
        recurring == {"scan-library", "verify-cache", "cleanup-orphans"},
    )
    watched = testbed.about("Stalker")["entity_id"]
    with testbed.db.begin() as tx:
        lost = store.assets_of(tx, watched)["poster.png"]
    (testbed.cache / lost).unlink()
    (testbed.cache / "orphan.png").write_text("unused")
    for type in ("verify-cache", "cleanup-orphans"):
        row = testbed.observer.schedules.get(type)
        check(f"{type} has priority 7", row.priority == 3)
        testbed.post(f"/api/v1/schedules/{row.id}/run")
        testbed.harness.until(f"{type} has run", partial(_has_run, testbed, type))
    found = testbed.observer.jobs.get(testbed.observer.schedules.get("verify-cache").id).result
    check("verify-cache finds what is missing", found["missing"] == [lost])
    check("cleanup-orphans removes unused files", not (testbed.cache / "orphan.png").exists())
    check("... and only that", len(list(testbed.cache.iterdir())) == found["checked"] - 1)
    by_hand = testbed.until(testbed.create("verify-cache", {}, 7)["id"], "completed")
    check("verify-cache can be enqueued by hand", by_hand.result["checked"] == found["checked"])


def transactional_enqueue(testbed: MediaTestbed) -> None:
    """A job and its rows are committed in one transaction."""
    payload = {"entity_type": "library", "entity_id": 99}
    try:
        with testbed.db.begin() as tx:
            store.add_library(tx, "/nowhere")
            testbed.observer.enqueue("scan-library", payload, tx=tx, key="undone")
            raise InterruptedError
    except InterruptedError:
        count = testbed.observer.jobs.count(key="undone")
    testbed.harness.check("rolled back: neither the library nor its job", count == 0)
    twice = testbed.client.post(
        "/api/v1/libraries", json={"path": str(testbed.harness.folder / "films")}
    )
    testbed.harness.check("a library is not added twice", twice.status_code == 409)


def _has_run(testbed: MediaTestbed, type: str) -> bool:
    return testbed.observer.schedules.get(type).last_run_at is not None
