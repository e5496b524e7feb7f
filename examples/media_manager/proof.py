"""What is proved, from outside: each function is one matter, for `python -m` and for the tests alike.

`prepare` comes first, with a worker that has one slot, which shows the order of priorities. `survive`
kills the server in the middle of a phase, and starts it again with four. Failures are in trouble.py.
"""

from collections import Counter
from functools import partial

from examples.media_manager import store
from examples.media_manager.scene import CHAINED, OFF, QUICK, Scene
from examples.media_manager.settings import to_priority

SHELF = tuple(
    f"{title} (1972)"
    for title in (
        *("Verify", "Auto", "Hook", "Select", "Manual", "Later", "Slow", "Urgent"),
        *("Wide 1", "Wide 2", "Wide 3", "Wide 4", "Wide 5", "Wide 6"),
        *("Limited", "Unsaid", "Silent", "Shaky", "Broken", "Absent", "Gone", "Locked", "Denied"),
        *("Unmounted", "Watched", "Cancelled", "Bare", "Switched", "Hung", "Shown", "Unshown"),
    )
)


def prepare(scene: Scene) -> None:
    """A library is added with its hourly scan, which runs at once."""
    prove = scene.stage.prove
    shelf = scene.library("shelf", *SHELF)
    added = scene.post("/api/v1/libraries", {"path": str(shelf)}, 201)
    scan = scene.look.schedules.get("scan-library", f"library:{added['id']}")
    scene.stage.until("the shelf is scanned", lambda: len(scene.get("/api/v1/media")) == len(SHELF))
    prove("a library and its hourly scan are committed together", scan.entity == ("library", 1))
    prove("with chainToEnrich off, a scan is not followed", not scene.jobs())


def priorities(scene: Scene) -> None:
    """With one slot, who is first is seen by the provider."""
    order = [("Verify", 7), ("Auto", 5), ("Hook", 3), ("Select", 2), ("Manual", 1), ("Later", 5)]
    with scene.paused():
        made = [scene.enrich(title, level) for title, level in order]
        depth = scene.get("/api/v1/stats")["jobs"]["pending"]
        scene.stage.prove("queue depth is told", depth == len(order))
    for id in made:
        scene.until(id, "completed")
    asked = [call.path.partition("?")[2] for call in scene.provider.calls if "?" in call.path]
    expected = ["Manual", "Select", "Hook", "Auto", "Later", "Verify"]
    scene.stage.prove("1 runs before 2, 3, 5 and 7; equals in the order made", asked == expected)


def survive(scene: Scene) -> None:
    """kill -9 in the middle of a phase; the rest of the chain, and nothing twice."""
    prove, provider = scene.stage.prove, scene.provider
    scene.set(phases=CHAINED)
    gate = provider.hold("Stalker")
    folder = scene.library("films", "Roadside", "Stalker (1979)")
    before = scene.jobs()
    scene.films = scene.post("/api/v1/libraries", {"path": str(folder)}, 201)["id"]
    scene.stage.until("an enrichment is in the middle of a picture", gate.reached.is_set)
    scene.kill()
    scene.set(worker=QUICK | {"concurrency": 4})
    gate.open()
    scene.start()
    scene.stage.until("the player knows of both", lambda: len(provider.refreshed) == 2)
    scene.until_idle()
    prove("killed with -9 in the middle of a phase, the chain is completed after a restart")
    made = Counter(job.type for job in scene.jobs(after=before[0]))
    once_each = {"enrich-metadata": 2, "publish-assets": 2, "sync-player": 2}
    prove("each title went through each phase in one job, no more", made == once_each)
    wanted = [str(folder / "Roadside"), str(folder / "Stalker (1979).mkv")]
    prove("the player was told once of each", sorted(provider.refreshed.values()) == wanted)
    prove("each picture is beside its film once", len(list(folder.glob("*.png"))) == 10)
    stalker = scene.about("Stalker")
    with scene.db.begin() as tx:
        prove("each asset is one row", len(store.assets_of(tx, stalker["entity_id"])) == 5)
    [job] = scene.jobs("enrich-metadata", entity=("movie", stalker["entity_id"]))
    prove("the crash spent no attempt", (job.attempts, job.crashes) == (1, 0))
    payloads = [scene.look.jobs.get(job.id).payload for job in scene.jobs(after=before[0])]
    prove("payloads name rows, and are small", max(len(str(one)) for one in payloads) < 300)


def switches(scene: Scene) -> None:
    """Both switches, and the log that says where the chain ended."""
    prove = scene.stage.prove
    for phases, sentence in (
        ({"enrichment": {"chainToPublish": False}}, "chainToPublish off: enriched, not published"),
        ({"publishing": {"enabled": False}}, "publishing disabled: enriched, not published"),
    ):
        scene.set(phases=phases)
        job = scene.until(scene.enrich("Switched"), "completed")
        said = "publishing is off, the chain ends here" in scene.log(job)
        prove(sentence, said and not scene.jobs(after=job))
    enriched = ["enrich-metadata", "publish-assets"]
    for phases, expected in (
        ({}, enriched),
        (CHAINED | {"syncing": {"enabled": False}}, enriched),
        (CHAINED, [*enriched, "sync-player"]),
    ):
        scene.set(phases=phases)
        job = scene.until(scene.enrich("Switched"), "completed")
        scene.until_idle()
        made = [*(one.type for one in scene.jobs(after=job)), job.type]
        prove(f"with {phases or 'the defaults'}: {', '.join(expected)}", sorted(made) == expected)
    scene.set(phases=OFF)


def inheritance(scene: Scene) -> None:
    """What somebody asked for by hand stays urgent; what follows by itself is normal."""
    scene.set(phases=CHAINED)
    for manual, level in ((True, 1), (False, 5)):
        job = scene.until(scene.enrich("Bare", 2, manual), "completed")
        scene.until_idle()
        followed = scene.jobs(after=job)
        right = [one.priority for one in followed] == [to_priority(level)] * 2
        scene.stage.prove(f"manual={manual}: what follows has priority {level}", right)
        right = all(scene.look.jobs.get(one.id).payload["manual"] is manual for one in followed)
        scene.stage.prove("... and says so to what comes after it", right)
    scene.set(phases=OFF)


def room(scene: Scene) -> None:
    """Four at a time, not five; and a slow job is in nobody's way."""
    prove, provider = scene.stage.prove, scene.provider
    titles = [f"Wide {n}" for n in range(1, 7)]
    gates = [provider.hold(title) for title in titles]
    provider.most_at_once = 0
    jobs = [scene.enrich(title) for title in titles]
    scene.stage.until("four are under way", lambda: provider.at_once == 4)
    counts = scene.get("/api/v1/jobs?status=running&type=enrich")["stats"]
    prove("four run, two wait", (counts["running"], counts["pending"]) == (4, 2))
    for gate in gates:
        gate.open()
    for id in jobs:
        scene.until(id, "completed")
    prove("never more than four ran at once", provider.most_at_once == 4)
    slow = provider.hold("Slow")
    held = scene.enrich("Slow", 7)
    scene.stage.until("a slow one runs", slow.reached.is_set)
    scene.until(scene.enrich("Urgent", 1), "completed")
    still = scene.look.jobs.get(held).status == "running"
    prove("a running job does not hold up a more urgent one", still)
    slow.open()
    scene.until(held, "completed")


def events(scene: Scene) -> None:
    """The three events, as a browser gets them."""
    prove = scene.stage.prove
    gate = scene.provider.hold("Watched")
    job = scene.create("enrich-metadata", scene.about("Watched"), 1)
    told = scene.messages(job["follow"], gate)
    halfway = {"status": "running", "progress": 50, "message": "Downloading selected assets"}
    complete = told[-1]["data"]
    identity = {"job_id": job["id"], "type": "enrich-metadata"}
    expected = {"event": "job:progress", "data": identity | halfway}
    right = any(expected.items() <= one.items() for one in told)
    prove("job:progress has a percentage, and what is done", right)
    result = {"assetsDownloaded": 5, "metadataUpdated": True}
    prove("job:complete has the result", complete == identity | {"result": result})
    prove("... and is the last", told[-1]["event"] == "job:complete")
    scene.provider.script("Unsaid", 404)
    failed = scene.create("enrich-metadata", scene.about("Unsaid"))
    [last] = [one for one in scene.messages(failed["follow"]) if one["event"] == "job:failed"]
    error = "NotFound: TMDB has no movie 'Unsaid': content not found"
    failure = identity | {"job_id": failed["id"], "error": error, "attempts": 1, "max_attempts": 3}
    prove("job:failed has the error, and the attempts", last["data"] == failure)


def requests(scene: Scene) -> None:
    """Create, list, cancel, retry: by whoever has the key."""
    prove = scene.stage.prove
    body = {"type": "enrich-metadata", "priority": 1}
    gate = scene.provider.hold("Cancelled")
    job = scene.create("enrich-metadata", scene.about("Cancelled") | {"manual": True}, 1)
    scene.stage.until("it is under way", gate.reached.is_set)
    prove("a job is made with priority 1, and is ours at 9", job["priority"] == 1)
    prove("... stored the other way round", scene.look.jobs.get(job["id"]).priority == 9)
    listed = scene.get("/api/v1/jobs?status=running&type=enrich")["jobs"]
    prove("?status=running&type=enrich finds it", [one["id"] for one in listed] == [job["id"]])
    prove("... with the worker that runs it", bool(listed[0]["worker_id"]))
    scene.client.delete(f"/api/v1/jobs/{job['id']}")
    prove("DELETE cancels it", scene.until(job["id"]).status == "cancelled")
    gate.open()
    scene.post(f"/api/v1/jobs/{job['id']}/retry")
    prove("retry lets it run again", scene.until(job["id"]).status == "completed")
    for wrong in (
        body | {"priority": 0},
        body | {"type": "no-such-task"},
        body | {"payload": {"entity_type": "movie", "entity_id": "many"}},
        body | {"colour": "red"},
    ):
        answer = scene.client.post("/api/v1/jobs", json=wrong)
        prove(f"refused: {answer.json()['detail']!s:.60}", answer.status_code == 422)
    nobody = {"X-Api-Key": "wrong"}
    for method, path in (("POST", "/api/v1/jobs"), ("GET", "/api/v1/jobs"), ("GET", "/metrics")):
        answer = scene.client.request(method, path, headers=nobody, json=body)
        prove(f"{method} {path} needs the key", answer.status_code == 401)


def schedules(scene: Scene) -> None:
    """What runs by itself: the hourly scan, a webhook's scan, and two that look after the cache."""
    prove, films = scene.stage.prove, scene.films
    with scene.paused():
        first, second = (scene.post(f"/webhooks/libraries/{films}", {}, 202) for _ in "ab")
        prove("a webhook's scan has priority 3", first["priority"] == 3)
        prove("... stored as 7", scene.look.jobs.get(first["id"]).priority == 7)
        prove("webhooks in a row are one scan", first["id"] == second["id"])
    prove("it scans", scene.until(first["id"]).result == {"found": 2, "new": 0})
    rows = {(row.type, row.key): row for row in scene.look.schedules.list()}
    recurring = {type for type, _ in rows}
    prove(
        "scans, verify-cache and cleanup-orphans recur",
        recurring == {"scan-library", "verify-cache", "cleanup-orphans"},
    )
    watched = scene.about("Stalker")["entity_id"]
    with scene.db.begin() as tx:
        lost = store.assets_of(tx, watched)["poster.png"]
    (scene.cache / lost).unlink()
    (scene.cache / "orphan.png").write_text("nobody needs me")
    for type in ("verify-cache", "cleanup-orphans"):
        row = scene.look.schedules.get(type)
        prove(f"{type} has priority 7", row.priority == 3)
        scene.post(f"/api/v1/schedules/{row.id}/run")
        scene.stage.until(f"{type} has run", partial(_has_run, scene, type))
    found = scene.look.jobs.get(scene.look.schedules.get("verify-cache").id).result
    prove("verify-cache finds what is missing", found["missing"] == [lost])
    prove("cleanup-orphans removes what nobody needs", not (scene.cache / "orphan.png").exists())
    prove("... and only that", len(list(scene.cache.iterdir())) == found["checked"] - 1)
    by_hand = scene.until(scene.create("verify-cache", {}, 7)["id"], "completed")
    prove("verify-cache runs by hand, too", by_hand.result["checked"] == found["checked"])


def together(scene: Scene) -> None:
    """A job is made with the rows that it is about, or not at all."""
    payload = {"entity_type": "library", "entity_id": 99}
    try:
        with scene.db.begin() as tx:
            store.add_library(tx, "/nowhere")
            scene.look.enqueue("scan-library", payload, tx=tx, key="undone")
            raise InterruptedError
    except InterruptedError:
        count = scene.look.jobs.count(key="undone")
    scene.stage.prove("rolled back: neither the library nor its job", count == 0)
    twice = scene.client.post("/api/v1/libraries", json={"path": str(scene.stage.folder / "films")})
    scene.stage.prove("a library is not added twice", twice.status_code == 409)


def _has_run(scene: Scene, type: str) -> bool:
    return scene.look.schedules.get(type).last_run_at is not None
