"""The processes of the live case. `server URL FILE` serves, and writes its port into a file. `clients
PORT COUNT FILTER FILE` follows that often, and says in a file that all are there. FILTER: all; or one,
where each follows a job of its own, of which nothing is ever told."""

import asyncio
import json
import socket
import sys
from contextlib import suppress
from pathlib import Path

import uvicorn
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from holdfast import Holdfast
from holdfast.ids import new_id
from holdfast.web import dashboard


def server(url: str, ready: str) -> None:
    with Holdfast(url) as app, socket.create_server(("127.0.0.1", 0)) as listening:
        served = dashboard(app, authorize=lambda request: "viewer")
        config = uvicorn.Config(served, log_level="warning", ws_per_message_deflate=False)
        Path(ready).write_text(str(listening.getsockname()[1]))
        uvicorn.Server(config).run(sockets=[listening])


async def clients(port: str, count: int, filter: str, ready: str) -> None:
    there = 0

    async def follow() -> None:
        nonlocal there
        query = "" if filter == "all" else f"job={new_id()}"
        after = ""
        while True:
            url = f"ws://127.0.0.1:{port}/api/v1/events?{query}{after}"
            async with connect(url, compression=None, max_queue=None) as followed:
                last = await followed.recv() if not after else ""
                there += not after
                with suppress(ConnectionClosed):
                    while True:
                        last = await followed.recv()
            if last:
                after = f"&after={json.loads(last)['position']}"

    tasks = [asyncio.create_task(follow()) for _ in range(count)]
    while there < count:
        await asyncio.sleep(0.05)
    Path(ready).write_text("ready")
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "server":
        server(*words)
    else:
        asyncio.run(clients(words[0], int(words[1]), words[2], words[3]))
