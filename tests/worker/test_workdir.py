"""Scratch folders: one for each claim, and what killed workers left behind is swept."""

import os
import stat
import time
from collections.abc import Collection
from pathlib import Path

from holdfast.core.ids import new_id
from holdfast.jobs.job import Claim
from holdfast.worker.housekeeping.workdir import (
    ORPHAN_AGE,
    make_workdir,
    remove_workdir,
    sweep_workdirs,
)

NOBODY: list[Claim] = []


def aged(path: Path, age: float = ORPHAN_AGE + 60) -> Path:
    """As if it had been touched so long ago."""
    moment = time.time() - age
    os.utime(path, (moment, moment))
    return path


def old(root: Path, claim: Claim) -> Path:
    path = make_workdir(root, claim)
    (path / "part").mkdir()
    (path / "part" / "data").write_text("x")
    return aged(path)


def sweep(root: Path, alive: Collection[Claim] = NOBODY) -> int:
    return sweep_workdirs(root, lambda ids: alive)


def test_each_claim_has_its_own_workdir(tmp_path: Path) -> None:
    id = new_id()
    first, second = (make_workdir(tmp_path / "deep" / "root", Claim(id, n)) for n in (1, 2))
    assert first != second
    assert first.parent == second.parent == tmp_path / "deep" / "root"
    (first / "left").write_text("by the first attempt")
    assert list(second.iterdir()) == []
    assert make_workdir(tmp_path / "deep" / "root", Claim(id, 1)) == first  # asked for twice


def test_the_workdir_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    path = make_workdir(tmp_path / "root", Claim(new_id(), 1))
    for folder in (path, path.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_workdir_is_removed_with_its_contents(tmp_path: Path) -> None:
    claim, other = Claim(new_id(), 1), Claim(new_id(), 1)
    path, kept = old(tmp_path, claim), old(tmp_path, other)
    remove_workdir(tmp_path, claim)
    assert (path.exists(), kept.exists()) == (False, True)
    remove_workdir(tmp_path, claim)  # twice is once


def test_abandoned_workdirs_are_swept_after_six_hours(tmp_path: Path) -> None:
    path = old(tmp_path, Claim(new_id(), 1))
    fresh = make_workdir(tmp_path, Claim(new_id(), 1))
    young = aged(make_workdir(tmp_path, Claim(new_id(), 1)), ORPHAN_AGE - 60)
    assert sweep(tmp_path) == 1
    assert [one.exists() for one in (path, fresh, young)] == [False, True, True]
    assert sweep(tmp_path) == 0


def test_a_claim_that_still_runs_keeps_its_folder(tmp_path: Path) -> None:
    """However old: a run may take days. An earlier claim of the same job is over."""
    id = new_id()
    before, now = old(tmp_path, Claim(id, 1)), old(tmp_path, Claim(id, 2))
    assert sweep(tmp_path, [Claim(id, 2)]) == 1
    assert [before.exists(), now.exists()] == [False, True]


def test_only_jobs_of_old_folders_are_looked_up_once(tmp_path: Path) -> None:
    id = new_id()
    old(tmp_path, Claim(id, 1))
    old(tmp_path, Claim(id, 2))
    make_workdir(tmp_path, Claim(new_id(), 1))
    asked: list[list[str]] = []

    def living(ids: list[str]) -> list[Claim]:
        asked.append(ids)
        return []

    sweep_workdirs(tmp_path, living)
    sweep_workdirs(tmp_path, living)
    assert asked == [[id]]  # nothing was left to ask about


def test_foreign_files_are_kept(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (target / "precious").write_text("x")
    root = tmp_path / "root"
    root.mkdir()
    strange = [root / "notes", root / f"{new_id()}", root / f"{new_id()}-x", root / "x-1"]
    for path in strange:
        path.mkdir()
    file = root / f"{new_id()}-1"
    file.write_text("a file of this name")
    link = root / f"{new_id()}-1"
    link.symlink_to(target, target_is_directory=True)
    for path in (*strange, file, target):
        aged(path)
    os.utime(link, (0, 0), follow_symlinks=False)
    assert sweep(root) == 0
    assert all(path.exists() for path in (*strange, file, link, target / "precious"))


def test_links_inside_are_removed_and_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (target / "precious").write_text("x")
    root = tmp_path / "root"
    path = make_workdir(root, Claim(new_id(), 1))
    (path / "link").symlink_to(target, target_is_directory=True)
    aged(path)
    assert sweep(root) == 1
    assert (path.exists(), (target / "precious").exists()) == (False, True)


def test_a_missing_root_has_nothing_to_sweep(tmp_path: Path) -> None:
    assert sweep(tmp_path / "never") == 0
