"""`python -m examples.media_manager`: the whole application, end to end. With `serve`: to look at.

It runs on SQLite, or on the empty database that MEDIA_DATABASE names.
"""

import os
import sys

from examples.media_manager import proof, trouble
from examples.media_manager.fakes import Limited
from examples.media_manager.scene import CHAINED, Scene, on_scene
from examples.stage import Stage, on_stage

STEPS = (
    *(proof.prepare, proof.priorities, proof.survive, proof.switches, proof.inheritance),
    *(proof.room, proof.events, proof.requests, proof.schedules, proof.together),
    *(trouble.rate_limited, trouble.timed_out, trouble.shaky, trouble.unmounted),
    *(trouble.disconnected, trouble.not_found, trouble.deleted, trouble.malformed),
    *(trouble.denied, trouble.reset, trouble.settled, trouble.figures),
)


def url_of(stage: Stage) -> str:
    return os.environ.get("MEDIA_DATABASE") or f"sqlite:///{stage.folder}/media.db"


def run() -> None:
    with on_stage("media manager") as stage, on_scene(stage, url_of(stage)) as scene:
        for step in STEPS:
            step(scene)


def serve() -> None:
    """With a provider that takes its time, one title that it limits, and one that it does not know."""
    with Stage("media-manager") as stage, on_scene(stage, url_of(stage), concurrency=2) as scene:
        show(scene)
        print(f"{scene.client.base_url}/library/  the key: {scene.client.headers['x-api-key']}")
        try:
            scene.process.wait()
        except KeyboardInterrupt:
            scene.stop()


def show(scene: Scene) -> None:
    scene.provider.pace = 0.7
    scene.provider.script("Solaris", Limited(3))
    scene.provider.script("Home video", 404)
    scene.set(phases=CHAINED | {"scanning": {"chainToEnrich": False}})
    titles = ("Solaris (1972)", "Stalker (1979)", "Mirror (1975)", "Home video (2019)", "Roadside")
    folder = scene.library("films", *titles)
    scene.post("/api/v1/libraries", {"path": str(folder)}, 201)


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else run()
