"""Scratch folders of runs: one for each claim, removed with its run. Folders that a killed worker left
behind are swept after six hours, unless their claim still runs."""

import os
import re
import shutil
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from holdfast.errors import InvalidInput
from holdfast.jobs.job import Claim

ORPHAN_AGE = 6 * 3600.0
_NAME = re.compile(r"([0-9a-f-]{36})-(\d+)")


def make_workdir(root: Path, claim: Claim) -> Path:
    """Make the scratch folder of a run and return its path. `root`: the folder for this database inside
    the folder of the settings; a sweep asks its own database which claims run, and must not find
    folders of another database."""
    for folder in (root.parent, root):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            # In a shared temporary folder another user may have made one of this name before us.
            raise InvalidInput(
                f"workdir={str(folder)!r} belongs to somebody else: set HOLDFAST_WORKDIR"
            )
    path = _path(root, claim)
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def remove_workdir(root: Path, claim: Claim) -> None:
    shutil.rmtree(_path(root, claim), ignore_errors=True)


def _path(root: Path, claim: Claim) -> Path:
    return root / f"{claim.id}-{claim.claim_no}"


def sweep_workdirs(
    root: Path, running: Callable[[list[str]], Collection[Claim]], *, age: float = ORPHAN_AGE
) -> int:
    """Remove abandoned folders; return their number. `running`: returns the claims of jobs that run."""
    claims: dict[str, Claim] = {}
    with suppress(FileNotFoundError), os.scandir(root) as entries:
        for entry in entries:
            if (found := _NAME.fullmatch(entry.name)) and _age(entry) > age:
                claims[entry.path] = Claim(found[1], int(found[2]))
    alive = running(sorted({claim.id for claim in claims.values()})) if claims else ()
    gone = [path for path, claim in claims.items() if claim not in alive]
    for path in gone:
        shutil.rmtree(path, ignore_errors=True)
    return len(gone)


def _age(entry: "os.DirEntry[str]") -> float:
    """Return the age of a folder in seconds; 0 for a file, or a folder that was just removed."""
    with suppress(FileNotFoundError):
        if entry.is_dir(follow_symlinks=False):
            return time.time() - entry.stat(follow_symlinks=False).st_mtime
    return 0.0
