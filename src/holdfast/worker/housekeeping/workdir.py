"""Scratch folders of runs: one for each claim, removed with its run; what a killed worker left behind
is swept after six hours, unless its claim still runs."""

import os
import re
import shutil
import time
from collections.abc import Callable, Collection
from pathlib import Path

from holdfast.errors import InvalidInput
from holdfast.jobs.job import Claim

ORPHAN_AGE = 6 * 3600.0
_NAME = re.compile(r"([0-9a-f-]{36})-(\d+)")


def make_workdir(root: Path, claim: Claim) -> Path:
    """`root` is of one database, inside of the folder that was given: whoever sweeps asks its database
    who lives, and must not find those of another."""
    for folder in (root.parent, root):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            # In a shared folder for temporary files anybody may have made one of this name before us.
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
    root: Path, living: Callable[[list[str]], Collection[Claim]], *, age: float = ORPHAN_AGE
) -> int:
    """Remove folders that nobody uses any more; how many went. `living`: of these job ids, the
    claims that run."""
    old = [entry for entry in _entries(root) if _age(entry) > age]
    claims = {entry: Claim(found[1], int(found[2])) for entry in old if (found := _match(entry))}
    alive = living(sorted({claim.id for claim in claims.values()})) if claims else ()
    gone = [entry for entry, claim in claims.items() if claim not in alive]
    for entry in gone:
        shutil.rmtree(entry.path, ignore_errors=True)
    return len(gone)


def _age(entry: "os.DirEntry[str]") -> float:
    try:
        return time.time() - entry.stat(follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return 0.0  # its run has just ended


def _match(entry: "os.DirEntry[str]") -> re.Match[str] | None:
    return _NAME.fullmatch(entry.name)


def _entries(root: Path) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(root) as entries:
            return [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
