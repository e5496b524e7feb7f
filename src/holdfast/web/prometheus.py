"""Metrics in the text format of Prometheus. From the database, so that every server reports the
same."""

from collections.abc import Iterable, Mapping

from holdfast.monitoring.health import Health
from holdfast.monitoring.metrics import Figures
from holdfast.monitoring.stats import Stats

Sample = tuple[Mapping[str, str], float]


def render(stats: Stats, health: Health) -> str:
    window = f"in the last {stats.window:.0f} seconds"
    parts = [
        _gauge("healthy", "1 if work is being done.", [({}, float(health.ok))]),
        _gauge(
            "jobs",
            f"Jobs in each status, counted up to {stats.cap}.",
            [({"status": status.value}, count) for status, count in stats.jobs.items()],
        ),
        _gauge("workers", "Workers that live.", [({}, stats.workers)]),
        _gauge(
            "queue_depth",
            f"Pending jobs of each queue, counted up to {stats.cap}.",
            [({"queue": queue.name}, queue.depth) for queue in stats.queues],
        ),
        _gauge(
            "queue_paused",
            "1 if nothing of the queue is claimed.",
            [({"queue": one.name}, float(one.paused_at is not None)) for one in stats.queues],
        ),
        _gauge(
            "queue_oldest_seconds",
            "How long the longest waiting job has been due.",
            [({"queue": queue}, age) for queue, age in stats.waiting.items()],
        ),
        _gauge("ended", f"Runs that ended {window}.", list(_ended(stats.by_task))),
        _gauge("wait_seconds", f"From due to started, {window}.", list(_times(stats, "wait"))),
        _gauge("run_seconds", f"From started to finished, {window}.", list(_times(stats, "run"))),
    ]
    return "".join(parts)


def _ended(tasks: Mapping[str, Figures]) -> Iterable[Sample]:
    for task, figures in tasks.items():
        for outcome in ("completed", "failed", "cancelled", "retried"):
            yield {"task": task, "outcome": outcome}, getattr(figures, outcome)


def _times(stats: Stats, which: str) -> Iterable[Sample]:
    for task, figures in stats.by_task.items():
        times = getattr(figures, which)
        for name, value in (("0.5", times.p50), ("0.95", times.p95)):
            if value is not None:
                yield {"task": task, "quantile": name}, value


def _gauge(name: str, help: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP holdfast_{name} {help}", f"# TYPE holdfast_{name} gauge"]
    for labels, value in samples:
        text = ",".join(f'{key}="{_escape(label)}"' for key, label in labels.items())
        lines.append(f"holdfast_{name}{'{' + text + '}' if text else ''} {value:.10g}")
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
