"""The dashboard's files: ours are small, safe modules; those of others come as the lock file says."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools import assets

ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "src" / "holdfast" / "web" / "static"
MODULES = sorted(path for path in STATIC.rglob("*.js") if "vendor" not in path.parts)
IMPORT = re.compile(r"""(?:\bfrom|\bimport)\s*\(?\s*["']([^"']+)["']""")
MAX_LINES = 300

UNSAFE = {
    "innerHTML": re.compile(
        r"\b(innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML)\b"
    ),
    "eval": re.compile(r"\beval\s*\(|\bnew Function\b"),
    "document.write": re.compile(r"\bdocument\.write"),
    "a style in text": re.compile(r"""\bstyle=["']"""),
}


def name(path: Path) -> str:
    return str(path.relative_to(STATIC))


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_module_is_small_and_safe(path):
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_LINES, "split it"
    assert not [what for what, pattern in UNSAFE.items() if pattern.search(text)]


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_what_a_module_imports_is_there(path):
    for target in IMPORT.findall(path.read_text()):
        assert target.startswith("."), f"{target} is not a relative path: browsers cannot find it"
        assert (path.parent / target).resolve().is_file(), f"{target} is missing"


def test_only_one_module_knows_third_party_code():
    knowing = [name(path) for path in MODULES if "/vendor/" in path.read_text()]
    assert knowing == ["lib.js"]


def test_the_shell_has_nothing_that_the_policy_forbids():
    shell = (STATIC / "index.html").read_text()
    assert not re.search(r"<style|style=|\son\w+=", shell)
    assert not re.search(r"<script(?![^>]*\ssrc=)", shell)
    named = re.findall(r"""(?:src|href)="([^"]+)\"""", shell)
    assert named
    for address in named:
        assert address.startswith("{{base}}/static/{{version}}/")
        assert (STATIC / address.removeprefix("{{base}}/static/{{version}}/")).is_file()


def test_vendored_files_are_those_of_the_lock():
    assert assets.is_complete(assets.LOCK, assets.VENDOR), "run `make assets`"
    for package in assets.packages(assets.LOCK):
        assert package["licence"] in ("MIT", "Apache-2.0")
        assert any(target.startswith("licences/") for target in package["files"].values())


def test_a_bare_import_becomes_relative_and_an_unknown_one_is_refused():
    modules = {"preact": "preact.js", "@preact/signals-core": "signals-core.js"}
    text = 'import{h}from"preact";export{signal}from\'@preact/signals-core\';import "./x.js";'
    expected = 'import{h}from"./preact.js";export{signal}from\'./signals-core.js\';import "./x.js";'
    assert assets.relative(text, "a.js", modules) == expected
    with pytest.raises(assets.Refused, match="imports lodash"):
        assets.relative('import "lodash"', "a.js", modules)


def test_another_tarball_than_the_locked_one_is_refused(tmp_path):
    script = "import pathlib; pathlib.Path('x-1.tgz').write_bytes(b'something else')"
    package = {"name": "x", "version": "1", "integrity": "sha512-AAAA"}
    with pytest.raises(assets.Refused, match="x@1 is not the one in"):
        assets.pack([sys.executable, "-c", script], package, tmp_path)


def test_the_wheel_carries_the_dashboard(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    wanted = {f"holdfast/web/static/vendor/{target}" for target in assets.targets(assets.LOCK)}
    wanted |= {f"holdfast/web/static/{name(path)}" for path in MODULES}
    assert not wanted - names
