"""What pages of the examples quote is what the examples say: ```py title="examples/NAME/file.py"."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "examples").glob("*.md"))
QUOTE = re.compile(r'^```py title="(examples/[\w/]+\.py)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_code_quoted_by_a_page_is_in_the_file(page: Path) -> None:
    for file, text in QUOTE.findall(page.read_text()):
        assert text in (ROOT / file).read_text(), f"{page.name} quotes {file} as it was"
