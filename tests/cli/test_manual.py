"""The manual: its commands run as they are written, and it names every option's rule rightly."""

import re
import shlex
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.jobs.job_json import FIELDS, RECURRING, WORKFLOW
from tests.cli.command import process

MANUAL = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "command.md").read_text("utf-8")
SHOP = re.search(r"^```python\n(# shop.py\n.*?)^```$", MANUAL, re.MULTILINE | re.DOTALL)
SHELL = re.findall(r"^```sh\n(.*?)^```$", MANUAL, re.MULTILINE | re.DOTALL)
ENDLESS = ("demo", "dev", "web", "worker")


def test_the_commands_run_as_they_are_written(tmp_path: Path):
    assert SHOP is not None
    (tmp_path / "shop.py").write_text(SHOP[1])
    variables: dict[str, str] = {}
    ran = 0
    for line in "".join(SHELL).splitlines():
        program, *words = shlex.split(line, comments=True)
        if program == "export":
            name, _, value = words[0].partition("=")
            variables[name] = value
        elif words[0] not in ENDLESS:
            done = process(*words, cwd=tmp_path, **variables)
            assert (done.returncode, done.stderr) == (0, ""), f"{line}\n{done.stderr}"
            ran += 1
    assert ran >= 20
    with Holdfast(f"sqlite:///{tmp_path}/jobs.db") as app:
        assert {job.type for job in app.jobs.search()} == {"send", "resize"}


@pytest.mark.parametrize("name", [*FIELDS, *RECURRING, *WORKFLOW])
def test_every_field_is_named(name: str):
    assert f"`{name}`" in MANUAL
