"""Groups of failures: those with the same exception, message and place.

Messages are compared without what varies from job to job (`normalise`). The place is the last frame
of the application's own code (`top_frame`), without its line, so that groups survive edits. Both are
pure; `read_errors` and `members` look at a bounded number of the newest failures, and store nothing.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from holdfast.core import validation
from holdfast.engine.engine import Engine
from holdfast.engine.records import Filter, Page
from holdfast.jobs import read as read_scripts
from holdfast.jobs.job import Job, Status
from holdfast.jobs.read import LastRun

LOOK = 1000  #: the newest failures to look at
BROKEN = (Status.FAILED, Status.RETRYING)
SAMPLES = 5
BUCKETS = 12
_PAGES = 3  # the most pages to read if few failures are of the wanted task
_LONGEST_ERROR = 1000
_LONGEST_MESSAGE = 300


# kinds, from texts alone

# In this order: a URL holds paths, a path holds numbers.
_VARYING = {
    "<url>": r"\b[a-z][a-z0-9+.-]{1,20}://[^\s'\"<>)\]]+",
    "<email>": r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+",
    "<text>": r"""(?<!\w)(?:'[^'\n]*'|"[^"\n]*"|`[^`\n]*`)(?!\w)""",
    "<uuid>": r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b",
    "<time>": r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?\b",
    "<path>": r"(?<![\w.<>/])(?:[a-z]:|~|\.{1,2})?(?:[/\\][\w.@%+-]+){2,}[/\\]?",
    "<hex>": r"\b(?:0x[0-9a-f]+|(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,})\b",
    "<n>": r"(?<![\w<])[+-]?\d+(?:[.,:]\d+)*|\d+",
}
_PATTERNS = {word: re.compile(text, re.IGNORECASE) for word, text in _VARYING.items()}
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*)(?:: ?(.*))?", re.DOTALL)
_FRAME = re.compile(r'^[ |+-]*File "([^"\n]+)", line \d+, in (.+)$', re.MULTILINE)
_FOREIGN = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\]python\d[\d.]*[/\\]|^<", re.IGNORECASE
)
_OWN = str(Path(__file__).parents[1])  # the package
_DEMO = str(Path(_OWN) / "demo")  # its tasks count as an application's


def normalise(message: str) -> str:
    """Return a message without what varies from job to job: numbers, quoted names, addresses, paths."""
    text = " ".join(message[: 4 * _LONGEST_MESSAGE].split())
    for word, pattern in _PATTERNS.items():
        text = pattern.sub(word, text)
    return text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 1] + "…"


def top_frame(trace: str | None) -> str | None:
    """Return where an error was raised: the last frame in the application's code, or else the last of
    all; as the two last parts of the file's path, and the function."""
    frames = _FRAME.findall(trace or "")
    if not frames:
        return None
    own = (frame for frame in reversed(frames) if _is_applications(frame[0]))
    path, function = next(own, frames[-1])
    short = "/".join(re.split(r"[/\\]", path)[-2:])
    return f"{short} in {function.strip()}"


def _is_applications(path: str) -> bool:
    if _FOREIGN.search(path):
        return False
    return not path.startswith(_OWN) or path.startswith(_DEMO)


class Kind(NamedTuple):
    """The features that all failures of a group share."""

    exception: str  #: the name of its class; empty: there was none
    message: str
    frame: str | None

    @property
    def id(self) -> str:
        text = "\x00".join([self.exception, self.message, self.frame or ""])
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def fingerprint(error: str | None, trace: str | None) -> Kind:
    """Return the kind of a failure, from its error ("Type: message") and its traceback."""
    parts = _EXCEPTION.fullmatch(error or "")
    name, message = (parts[1], parts[2] or "") if parts else ("", error or "")
    return Kind(name, normalise(message), top_frame(trace))


# groups


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorGroup:
    id: str
    exception: str
    message: str  #: normalised
    frame: str | None
    types: list[str]  #: the most frequent first
    statuses: dict[Status, int]
    count: int
    first_at: datetime  #: when one of them failed, and...
    last_at: datetime  #: ... the last of them
    sample_ids: list[str]  #: of the newest
    sample_error: str
    sparkline: list[int]  #: how many in each twelfth of the time from `since` to now


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorGroups:
    groups: list[ErrorGroup]  #: the most frequent first
    looked_at: int  #: failures
    complete: bool  #: these were all
    since: datetime | None  #: when the first of them failed


class Members(NamedTuple):
    ids: list[str]
    next: str | None  #: give it as `after` for the next page; None: that was all


class _Failure(NamedTuple):
    job: Job
    kind: Kind
    at: datetime


def read_errors(
    engine: Engine,
    *,
    statuses: Collection[str] = BROKEN,
    type: str | None = None,
    look: int = LOOK,
) -> ErrorGroups:
    """Return the newest failures of a task, or of all tasks, in groups."""
    found: list[_Failure] = []
    after, complete = None, False
    for _ in range(_PAGES):
        page, failures = _read(engine, statuses, type, after, look - len(found))
        found += failures
        after, complete = page.next, page.next is None
        if complete or len(found) >= look:
            break
    alike: dict[Kind, list[_Failure]] = {}
    for one in found:
        alike.setdefault(one.kind, []).append(one)
    now = engine.now()
    since = min((one.at for one in found), default=None)
    groups = [_group(kind, failures, since or now, now) for kind, failures in alike.items()]
    groups.sort(key=lambda one: (one.count, one.last_at), reverse=True)
    return ErrorGroups(groups=groups, looked_at=len(found), complete=complete, since=since)


def members(
    engine: Engine,
    group: str | None,
    *,
    statuses: Collection[str] = BROKEN,
    after: str | None = None,
    limit: int = 500,
) -> Members:
    """Return the ids of a group, page by page: a page looks at `limit` failures, and may be empty
    although more follow."""
    page, failures = _read(engine, statuses, None, after, limit)
    return Members([one.job.id for one in failures if one.kind.id == group], page.next)


def _read(
    engine: Engine, statuses: Collection[str], type: str | None, after: str | None, limit: int
) -> tuple[Page, list[_Failure]]:
    wanted = frozenset(status for status in BROKEN if status in statuses)
    if not wanted:
        return Page([], None), []
    filter = Filter(status=wanted, type=None if type is None else validation.name(type, "type"))
    page = engine.search(filter, after=after, limit=limit)
    ids = [job.id for job in page.jobs]
    runs = engine.run(partial(read_scripts.last_runs, engine.dialect, ids), write=False)
    return page, [_failure(job, runs.get(job.id)) for job in page.jobs]


def _failure(job: Job, run: LastRun | None) -> _Failure:
    trace, at = (None, job.updated_at) if run is None else run
    return _Failure(job, fingerprint(job.error, trace), at)


def _group(kind: Kind, found: Sequence[_Failure], since: datetime, now: datetime) -> ErrorGroup:
    moments = [one.at for one in found]
    statuses = Counter(one.job.status for one in found)
    types = Counter(one.job.type for one in found)
    return ErrorGroup(
        id=kind.id,
        exception=kind.exception,
        message=kind.message,
        frame=kind.frame,
        types=[type for type, _ in types.most_common()],
        statuses={status: statuses[status] for status in BROKEN},
        count=len(found),
        first_at=min(moments),
        last_at=max(moments),
        sample_ids=[one.job.id for one in found[:SAMPLES]],
        sample_error=(found[0].job.error or "")[:_LONGEST_ERROR],
        sparkline=sparkline(moments, since, now),
    )


def sparkline(moments: Iterable[datetime], since: datetime, now: datetime) -> list[int]:
    """Return how many moments are in each twelfth of the time; later ones count in the last."""
    counts = [0] * BUCKETS
    length = max((now - since).total_seconds(), 1.0)
    for moment in moments:
        place = int((moment - since).total_seconds() / length * BUCKETS)
        counts[max(0, min(place, BUCKETS - 1))] += 1
    return counts
