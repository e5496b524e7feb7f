"""Build the site of the documentation: the pages of docs/ and those made from the code.

python -m tools.site [FOLDER]    into FOLDER, or site/

The pages are staged in a temporary folder, so that no made page is among the written ones.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools import reference

ROOT = Path(__file__).resolve().parents[1]
CONFIGURATION = "zensical.toml"
_KINDS = {"blank": r"\s*$", "more": r"\s", "table": r"\|", "list": r"[-*] |\d+\. "}
_APART = {("text", "table"), ("text", "list"), ("list", "table"), ("more", "table")} | {
    ("table", "text"),
    ("table", "list"),
}


def stage(folder: Path) -> None:
    """Put all pages of the site and its configuration into a folder."""
    docs = folder / "docs"
    shutil.copytree(ROOT / "docs", docs, ignore=shutil.ignore_patterns("more"))
    reference.write(docs / "reference")
    shutil.copy(ROOT / "CHANGELOG.md", docs / "changelog.md")
    for page in docs.rglob("*.md"):
        page.write_text(spaced(page.read_text("utf-8")), encoding="utf-8")
    text = (ROOT / CONFIGURATION).read_text("utf-8")
    (folder / CONFIGURATION).write_text(navigation(text, docs), encoding="utf-8")


def kind_of(line: str) -> str:
    return next((kind for kind, pattern in _KINDS.items() if re.match(pattern, line)), "text")


def spaced(text: str) -> str:
    """Return a page in the Markdown of the builder, which code hosts do not need: blank lines around
    tables and before lists, and no backslash before a bar in the code of a table."""
    lines: list[str] = []
    before, fenced = "blank", False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced, kind = not fenced, "text"
        else:
            kind = "text" if fenced else kind_of(line)
        if not fenced and (before, kind) in _APART:
            lines.append("")
        lines.append(re.sub(r"`[^`]*`", _bare, line) if kind == "table" else line)
        before = kind
    return "\n".join(lines) + "\n"


def _bare(code: re.Match[str]) -> str:
    return code[0].replace("\\|", "|")


def navigation(text: str, docs: Path) -> str:
    """Return the configuration, with its patterns replaced by the pages that match them."""
    named = set(re.findall(r'"([\w/-]+\.md)"', text))

    def pages(match: re.Match[str]) -> str:
        pattern = match[1]
        found = sorted(path.relative_to(docs).as_posix() for path in docs.glob(f"{pattern}.md"))
        return ", ".join(f'"{page}"' for page in found if page not in named)

    text = re.sub(r'"([a-z]+/?\*)"', pages, text)
    # Patterns that match no page leave an empty entry, or an empty section.
    return re.sub(r'^ *(\{ "[^"]+" = \[\] \})?,\n', "", text, flags=re.MULTILINE)


def build(folder: Path, out: Path) -> str:
    """Build the staged site into `out`; return the output of the builder, which writes only into
    `folder`."""
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--clean", "--strict"],
        cwd=folder,
        capture_output=True,
        env={**os.environ, "NO_COLOR": "1"},
        text=True,
        check=False,
    )
    told = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    if done.returncode != 0 or "warning" in told.lower():
        raise SystemExit(f"the site cannot be built without warnings:\n{told}")
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(folder / "site", out)
    return told


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-docs-") as folder:
        stage(Path(folder))
        build(Path(folder), out)
    print(f"{sum(1 for _ in out.rglob('*.html'))} pages: {out / 'index.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "site")
