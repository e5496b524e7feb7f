"""A server as the command runs one: told to stop, it ends its streams.
`python -m tests.web.stopping URL SCHEMA`"""

import socket
import sys
from types import FrameType

import uvicorn

from holdfast import Holdfast
from holdfast.access import Access
from holdfast.web import dashboard


class Server(uvicorn.Server):
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        web.close()
        super().handle_exit(sig, frame)


with Holdfast(sys.argv[1], schema=sys.argv[2]) as app, socket.create_server(("127.0.0.1", 0)) as at:
    server = dashboard(app)
    web = server.state.web
    print(at.getsockname()[1], Access(app).create("root", "admin")[1], flush=True)
    Server(uvicorn.Config(server, log_level="warning")).run(sockets=[at])
