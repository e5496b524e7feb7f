"""The endurance run: pages stay open for minutes under load, and their memory use is printed.

python -m tests.browser.endurance --minutes 10
"""

import argparse
import sys
import tempfile
import time

from playwright.sync_api import sync_playwright

from tests.browser.site import WIDE, make_site
from tests.browser.traffic import OpenPage, Sample, enqueue_burst
from tests.conftest import Database
from tools.programs import need

PATHS = ("/jobs", "/", "/errors", "/activity")
BURST = 200
_HEAD = " minute page        heap MB  nodes listeners requests  rows"


def _line(minute: float, path: str, one: Sample) -> str:
    return (
        f"{minute:>7.1f} {path:<10} {one.heap / 1e6:>8.2f} {one.nodes:>6} {one.listeners:>9} "
        f"{one.requests:>8} {one.rows:>5}"
    )


def run(minutes: float, pause: float) -> int:
    path = need("chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        database = Database("sqlite", f"sqlite:///{folder}/jobs.db", "holdfast", [])
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        context = browser.new_context(viewport=WIDE)  # type: ignore[arg-type]
        with make_site(database) as site, site.app.worker(queues="default=8", grace=5):
            site.enter(context, site.token).close()
            context.set_default_timeout(60_000)
            print(_HEAD, flush=True)
            jobs, begun, told = 0, time.monotonic(), 0.0
            open_pages = {one: OpenPage(site, context, site.url + one) for one in PATHS}
            while (passed := (time.monotonic() - begun) / 60) < minutes:
                enqueue_burst(site, BURST)
                jobs += BURST
                if passed >= told:
                    told = passed + max(0.25, minutes / 20)
                    for name, page in open_pages.items():
                        print(_line(passed, name, page.sample()), flush=True)
                open_pages["/jobs"].page.wait_for_timeout(pause * 1000)
            for name, page in open_pages.items():
                print(_line(minutes, name, page.sample()), flush=True)
            print(f"{jobs} jobs in {minutes:g} minutes; problems: {site.problems or 'none'}")
        browser.close()
        for opened in database.opened:
            opened.close()
    return 1 if site.problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--pause", type=float, default=5, help="seconds between bursts of 200 jobs")
    given = parser.parse_args()
    return run(given.minutes, given.pause)


if __name__ == "__main__":
    sys.exit(main())
