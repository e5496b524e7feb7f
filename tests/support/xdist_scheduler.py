"""How pytest-xdist distributes tests: by test, except for files whose fixtures are expensive."""

from xdist.scheduler import LoadScopeScheduling

# Files whose module or session fixtures take long to make.
ONE_PROCESS_EACH = (
    "tests/browser/",
    "tests/docs/test_reference.py",
    "tests/docs/test_site.py",
    "tests/examples/",
    "tests/plans/",
    "tests/worker/test_outage.py",
)


class FileGroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Distribute single tests, so that no process is left alone with a long file at the end, but keep
    the tests of some files together. The largest groups come first."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if file.startswith(ONE_PROCESS_EACH) else nodeid
