"""What a worker does first, once its database answers."""

import logging

from holdfast.app import Holdfast
from holdfast.engine.records import Swept
from holdfast.worker.housekeeping.sync_declarations import declare

logger = logging.getLogger("holdfast.worker")


def look_around(app: Holdfast, worker: str | None) -> Swept:
    """Make known what the code declares, give back what dead workers held, and log what waits."""
    declare(app)
    swept = app.engine.sweep([], limit=1000)
    pending = app.jobs.count(status="pending")
    shown = f"{pending}{'+' if pending >= 10_000 else ''}"
    recovered = len(swept.rescued)
    logger.info("worker %s started: %d recovered, %s pending", worker, recovered, shown)
    return swept
