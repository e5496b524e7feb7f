"""The report that a worker sends with every heartbeat, and that `holdfast workers` shows."""

import json
import os
import resource
import socket
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.worker.housekeeping.sync_declarations import hooked

if TYPE_CHECKING:
    from holdfast.worker.worker import Worker

_VERSION = metadata.version("holdfast")
_LISTED = 20  # running jobs


def worker_info(worker: "Worker") -> str:
    """Return a worker's report as JSON text."""
    settings, lanes = worker.app.settings, worker.lanes
    running = worker.executions()
    return json.dumps(
        {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": _VERSION,
            "app_version": settings.app_version,
            "queues": sorted({lane.queue for lane in lanes}),
            "heartbeat": settings.heartbeat,
            "slots": sum(lane.size for lane in lanes),
            "tasks": sorted(worker.app.tasks),
            "hooks": hooked(worker.app),
            "running": len(running),
            "draining": worker.draining,
            "cannot_write_for": round(worker.cannot_write_for, 1),
            "supervised": worker.supervised,
            "level": worker.isolation.level,
            "full": worker.isolation.full,
            "memory": memory(),
            "unreadable": worker.unreadable.info(),
            "jobs": [
                {"id": x.job.id, "type": x.job.type, "stuck": x.stuck} for x in running[:_LISTED]
            ],
        }
    )


def memory() -> int:
    """Return the bytes of memory in use; if the system does not tell, the most that were ever in
    use."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
