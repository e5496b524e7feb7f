"""A server that is told to stop does not wait for those who follow."""

import signal
import subprocess
import sys
import time
from typing import Any

from holdfast.events import outbox
from tests.conftest import Database
from tests.web.live.test_streams import enqueue, ids, take
from tests.web.serving import PATIENCE, Site


def test_streams_end_when_the_server_is_told_to_stop(database: Database) -> None:
    app = database.app()
    app.migrate()
    command = [sys.executable, "-m", "tests.web.stopping", database.url, database.schema]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            port, token = process.stdout.readline().split()
            nothing: Any = None
            site = Site(app, f"127.0.0.1:{port}", nothing, token, nothing)
            with site.socket() as one, site.sse() as other:
                one.take()
                first = other.take()
                assert first is not None
                app.engine.run(
                    lambda: outbox.read_followers(app.engine.dialect), write=True
                )  # learn it now
                made = enqueue(app, 1)
                assert ids(take(one, 1)) == made
                assert ids(take(other, 1)) == made
                begin = time.monotonic()
                process.send_signal(signal.SIGTERM)
                assert other.rest() == []
                assert one.code() == 1012
                process.wait(PATIENCE)
                assert time.monotonic() - begin < 3
                assert process.returncode == -signal.SIGTERM  # uvicorn's way, once it is done
        finally:
            if process.poll() is None:
                process.kill()
