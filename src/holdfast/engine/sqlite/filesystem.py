"""Checks where a SQLite file lies (not on a network filesystem, whose locks cannot be trusted), and
lets only its owner read it."""

import os
from contextlib import suppress
from pathlib import Path

from holdfast.errors import UnsafeFilesystem

_NETWORK = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "afs",
        "ceph",
        "glusterfs",
        "lustre",
        "gpfs",
        "9p",
        "virtiofs",
    }
)
_HARMLESS_FUSE = frozenset({"fuseblk"})
_MOUNTS = Path("/proc/self/mountinfo")
BESIDE = ("-wal", "-shm", "-turn", "-line")  #: what lies beside a database of ours


def refuse_network(path: Path, mounts: str | None = None) -> None:
    """Raise if the path is on a network filesystem, as far as the system tells."""
    if mounts is None:
        mounts = _MOUNTS.read_text() if _MOUNTS.exists() else ""
    kind = filesystem_of(path, mounts)
    fuse = kind.startswith("fuse") and kind not in _HARMLESS_FUSE
    if kind in _NETWORK or fuse:
        raise UnsafeFilesystem(
            f"{os.fspath(path)!r} is on a {kind} filesystem, where SQLite's locks cannot be "
            "trusted: use a local disk, or PostgreSQL for several machines; if you know that one "
            "process alone uses it, add ?network=allow to the URL"
        )


def make_private(path: Path) -> None:
    """Let only the owner read a database that was just made: it holds arguments and results. The mode
    is set by path: to open and close a file of SQLite would drop the locks that this process has on
    it."""
    for name in ("", *BESIDE):
        with suppress(FileNotFoundError):
            Path(f"{path}{name}").chmod(0o600)


def filesystem_of(path: Path, mounts: str) -> str:
    """Return the type of the filesystem that holds a path, from the text of /proc/self/mountinfo."""
    parts = path.parent.resolve().parts
    best, kind = -1, ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        point = Path(fields[4].replace("\\040", " ").replace("\\011", "\t")).parts
        # The later of two mounts on one point hides the earlier.
        if parts[: len(point)] == point and len(point) >= best:
            best, kind = len(point), after.split()[0]
    return kind
