"""A server of its own process, with limits of connections that a test chooses.

    python -m tests.web.limited URL JSON

prints its port, and its log to stderr.
"""

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from holdfast import Holdfast
from holdfast.core.log_format import configure
from holdfast.web import dashboard
from holdfast.web.http.connections import ConnectionLimits
from holdfast.web.http.serving import Server, Serving, listen


def main(url: str, given: dict[str, Any]) -> None:
    configure()
    if files := given.get("files"):
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    serving = Serving(
        limits=ConnectionLimits(**given.get("limits", {})),
        proxies=tuple(given.get("proxies", ())),
        tls_cert=Path(given["cert"]) if "cert" in given else None,
        tls_key=Path(given["cert"]) if "cert" in given else None,
    )
    with Holdfast(url, auto_migrate=True) as app:
        site = dashboard(app)
        app.engine.open()
        server = Server(site, serving, ready=lambda: print(port, flush=True))
        wasted = [os.open(os.devnull, os.O_RDONLY) for _ in range(given.get("wasted", 0))]
        server.run([listener])
        assert len(wasted) == given.get("wasted", 0)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
