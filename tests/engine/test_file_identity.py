"""What a SQLite file is recognised by: the same as `os.stat` says, also where threads ask at once."""

import os
import threading
from pathlib import Path

import pytest

from holdfast.engine.sqlite import file_identity


def inode(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


@pytest.mark.parametrize("quick", [True, False], ids=["as here", "without statx"])
def test_a_file_is_identified_by_its_device_and_inode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: bool
) -> None:
    if not quick:
        monkeypatch.setattr(file_identity, "_statx", None)
    file = tmp_path / "file"
    assert file_identity._inode(os.fsencode(file)) is None
    file.touch()
    assert file_identity._inode(os.fsencode(file)) == inode(file)
    assert file_identity._inode(os.fsencode(file) + b"/x") is None
    file.unlink()
    assert file_identity._inode(os.fsencode(file)) is None


def test_concurrent_threads_do_not_get_each_others_answers(tmp_path: Path) -> None:
    files = [tmp_path / f"file-{number}" for number in range(4)]
    for file in files:
        file.touch()
    wrong: list[Path] = []

    def ask(file: Path) -> None:
        name, known = os.fsencode(file), inode(file)
        wrong.extend(file for _ in range(20_000) if file_identity._inode(name) != known)

    threads = [threading.Thread(target=ask, args=[file]) for file in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
