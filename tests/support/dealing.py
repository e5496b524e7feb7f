"""Which tests stay together when several processes share them."""

from xdist.scheduler import LoadScopeScheduling

# What such a file looks at takes long to make, and is made once.
TOGETHER = (
    "tests/browser/",
    "tests/docs/test_reference.py",
    "tests/docs/test_site.py",
    "tests/examples/",
    "tests/plans/",
    "tests/worker/test_outage.py",
)


class Dealing(LoadScopeScheduling):  # type: ignore[misc]
    """Tests are dealt out one by one, so that no process works alone at the end with a long file; but
    those of some files are one piece. The largest pieces are first."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if file.startswith(TOGETHER) else nodeid
