"""Find a Chromium for the browser's tests; as root on Debian, install it.

python tools/browser.py    prints its path, or what to install
"""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
REMEDY = "the browser's tests need Chromium: apt-get install chromium, or put one on the PATH"


def find() -> str | None:
    """The path of a browser of this machine."""
    given = os.environ.get("CHROMIUM")
    if given:
        return given
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def install() -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
        subprocess.run(["apt-get", "--quiet", *arguments], env=environment, check=False)


def main() -> int:
    if find() is None:
        install()
    found = find()
    print(found or REMEDY, file=sys.stdout if found else sys.stderr)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
