"""Find the programs that tests and examples need; as root on Debian, install them.

python tools/programs.py chromium ffmpeg    prints their paths, or what to install
"""

import os
import shutil
import subprocess
import sys

# By the package's name: the names that the program itself may have.
NAMES = {
    "chromium": ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
    "ffmpeg": ("ffmpeg",),
    "pgbouncer": ("pgbouncer",),
    "haproxy": ("haproxy",),
    "faketime": ("faketime",),
}
_PLACES = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))


def find(package: str) -> str | None:
    """Return the path of a program; CHROMIUM or FFMPEG in the environment names another one."""
    given = os.environ.get(package.upper())
    if given:
        return given
    return next(
        (path for name in NAMES[package] if (path := shutil.which(name, path=_PLACES))), None
    )


def need(package: str) -> str:
    """Return the path of a program. Raises if it is missing: a test fails then, it is not skipped."""
    found = find(package)
    if found is None:
        raise FileNotFoundError(remedy(package))
    return found


def remedy(package: str) -> str:
    return f"this needs {package}: apt-get install {package}, or put it on the PATH"


def install(packages: list[str]) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        subprocess.run(["apt-get", "--quiet", *arguments], env=environment, check=False)


def main(packages: list[str]) -> int:
    if unknown := [package for package in packages if package not in NAMES]:
        print(f"unknown: {', '.join(unknown)}; known: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    if absent := [package for package in packages if find(package) is None]:
        install(absent)
    for package in packages:
        found = find(package)
        print(found or remedy(package), file=sys.stdout if found else sys.stderr)
    return 0 if all(find(package) for package in packages) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
