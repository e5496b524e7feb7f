"""Every Python block of the documentation runs, in order, as a reader would paste them."""

from pathlib import Path

import pytest

from tests.docs.pages import PAGES, blocks, name_of

WITH_CODE = [page for page in PAGES if blocks(page, "python")]


@pytest.mark.parametrize("page", WITH_CODE, ids=map(name_of, WITH_CODE))
def test_the_code_blocks_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "pasted"}
    exec(compile("\n".join(blocks(page, "python")), str(page), "exec"), names)


def test_pages_with_code_are_found() -> None:
    """Without this, a moved folder would make the test above pass on nothing."""
    assert len(WITH_CODE) > 15
