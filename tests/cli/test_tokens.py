"""`holdfast tokens`."""

import re

import pytest

from holdfast.access import Access
from holdfast.engine.engine import Engine
from tests.cli.command import Command


def test_a_token_is_printed_once(command: Command, now: Engine):
    done = command("tokens", "create", "--name", "ann", "--role", "operator")
    assert (done.code, done.err) == (0, "")
    secret = done.out.strip()
    assert re.fullmatch(r"hf_[A-Za-z0-9_-]{43}", secret)
    found = Access(now).check(secret)
    assert found is not None
    assert (found.name, found.role, found.created_by) == ("ann", "operator", "the command")
    assert secret not in command("tokens", "list").out
    assert secret not in command("tokens", "list", "--json").out


def test_a_terminal_says_that_it_is_not_shown_again(command: Command):
    told = command.terminal("tokens", "create", "--name", "ann", "--expires", "30d").out
    assert told.startswith("hf_")
    assert "viewer token 'ann', until 20" in told
    assert "not shown again" in told


def test_the_scope_of_an_enqueue_token(command: Command, now: Engine):
    words = ["--name", "shop", "--role", "enqueue", "--task", "send", "--task", "resize"]
    made = command("tokens", "create", *words, "--queue", "mail", "--expires", "1h", "--json").json
    assert (made["tasks"], made["queues"]) == (["resize", "send"], ["mail"])
    assert made["expires_at"] > made["created_at"]
    found = Access(now).check(made["token"])
    assert found is not None
    assert found.id == made["id"]
    [listed] = command("tokens", "list", "--json").json
    assert {**listed, "token": made["token"], "last_used_at": None} == made
    header, row = command("tokens", "list").out.splitlines()
    assert header.split() == ["ID", "NAME", "ROLE", "STATE", "MADE", "USED", "ONLY"]
    assert row.split()[1:3] == ["shop", "enqueue"]
    assert row.endswith("resize, send, queue:mail")


def test_revoking(command: Command, now: Engine):
    secrets = [command("tokens", "create", "--name", name).out.strip() for name in ("a", "b", "c")]
    ids = [token["id"] for token in command("tokens", "list", "--json").json]
    assert command("tokens", "revoke", ids[0]).out == f"revoked {ids[0]}: c\n"
    [again, other] = command("tokens", "revoke", *ids[:2], "--json").json
    assert (again["name"], other["name"]) == ("c", "b")
    assert again["revoked_at"] is not None
    assert [Access(now).check(secret) is None for secret in secrets] == [False, True, True]
    states = [line.split()[3] for line in command("tokens", "list").out.splitlines()[1:]]
    assert states == ["revoked", "revoked", "valid"]


@pytest.mark.parametrize(
    ("words", "code", "remedy"),
    [
        (["create", "--name", "ann", "--role", "root"], 2, "viewer, operator, admin, enqueue"),
        (["create"], 2, "--name"),
        (["create", "--name", ""], 2, "printable"),
        (["create", "--name", "ann", "--task", "send"], 2, "'enqueue' token"),
        (["create", "--name", "ann", "--expires", "soon"], 2, "'7d'"),
        (["revoke", "nope"], 2, "give a UUID"),
        (["revoke", "01890000-0000-7000-8000-000000000000"], 4, "'holdfast tokens list'"),
        (["revoke"], 2, "ID"),
    ],
)
def test_wrong_calls(command: Command, words: list[str], code: int, remedy: str):
    refused = command("tokens", *words)
    assert (refused.code, refused.out) == (code, "")
    assert remedy in refused.err
    assert command("tokens", "list", "--json").json == []
