"""The callback for hubs: before a hub sends changes of a feed, it asks whether we requested them.

python -m examples.feeds.server 8687
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qsl, urlsplit

import sqlalchemy as sql

from examples.feeds.app import app, transaction
from examples.feeds.store import feeds, websub


def confirm(feed_id: str, topic: str, term: int) -> bool:
    """Start the lease and return True, if we asked the hub for this feed."""
    with transaction() as tx:
        ours = sql.select(feeds.c.id).where(feeds.c.id == feed_id, feeds.c.url == topic)
        wanted = websub.update().where(websub.c.feed_id.in_(ours))
        ends = app.clock.now() + timedelta(seconds=term)
        return tx.execute(wanted.values(expires_at=ends)).rowcount == 1


class Callback(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        address = urlsplit(self.path)
        said = dict(parse_qsl(address.query))
        feed_id = address.path.removeprefix("/websub/")
        term = said.get("hub.lease_seconds", "")
        meant = said.get("hub.mode") == "subscribe" and term.isdigit() and len(term) < 10
        found = meant and confirm(feed_id, said.get("hub.topic", ""), int(term))
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(said.get("hub.challenge", "").encode() if found else b"")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextmanager
def serving(port: int = 0) -> Iterator[str]:
    """Serve in a thread of this process; yields the address."""
    with ThreadingHTTPServer(("127.0.0.1", port), Callback) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Callback) as server:
        server.serve_forever()
