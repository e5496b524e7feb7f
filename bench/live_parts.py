"""The processes of the live case. `server URL FILE` serves, and writes its port into a file. `clients
PORT COUNT FILE` follows everything that often, and says in a file that all are there. `owners PORT
FOLDER` follows the jobs that a file `ids-N` names, one each, writes `there-N` when all are there, and
`told-N` when each was told the end of its job."""

import asyncio
import json
import os
import socket
import sys
from contextlib import suppress
from itertools import count as numbers
from pathlib import Path

import uvicorn
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from holdfast import Holdfast
from holdfast.web import dashboard


def server(url: str, ready: str) -> None:
    with Holdfast(url) as app, socket.create_server(("127.0.0.1", 0)) as listening:
        served = dashboard(app, authorize=lambda request: "viewer")
        config = uvicorn.Config(served, log_level="warning", ws_per_message_deflate=False)
        put(Path(ready), str(listening.getsockname()[1]))
        uvicorn.Server(config).run(sockets=[listening])


async def clients(port: str, count: int, ready: str) -> None:
    there = 0

    async def follow() -> None:
        nonlocal there
        after = ""
        while True:
            url = f"ws://127.0.0.1:{port}/api/v1/events?{after}"
            async with connect(url, compression=None, max_queue=None) as followed:
                last = await followed.recv() if not after else ""
                there += not after
                with suppress(ConnectionClosed):
                    while True:
                        last = await followed.recv()
            if last:
                after = f"after={json.loads(last)['position']}"

    tasks = [asyncio.create_task(follow()) for _ in range(count)]
    while there < count:
        await asyncio.sleep(0.05)
    Path(ready).write_text("ready")
    await asyncio.gather(*tasks)


async def owners(port: str, folder: Path) -> None:
    for number in numbers():
        while not (folder / f"ids-{number}").exists():
            await asyncio.sleep(0.02)
        ids = json.loads((folder / f"ids-{number}").read_text())
        there: asyncio.Queue[None] = asyncio.Queue()
        tasks = [asyncio.create_task(own(port, id, there)) for id in ids]
        for _ in ids:
            await there.get()
        (folder / f"there-{number}").touch()
        await asyncio.gather(*tasks)
        (folder / f"told-{number}").touch()


async def own(port: str, id: str, there: "asyncio.Queue[None]") -> None:
    """Until its job has ended."""
    url = f"ws://127.0.0.1:{port}/api/v1/events?job={id}"
    async with connect(url, compression=None) as followed:
        await followed.recv()
        there.put_nowait(None)
        while json.loads(await followed.recv())["event"] != "job:complete":
            pass


def put(path: Path, text: str) -> None:
    """Whole, or not at all: somebody waits for it."""
    path.with_suffix(".new").write_text(text)
    os.replace(path.with_suffix(".new"), path)


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "server":
        server(*words)
    elif what == "owners":
        asyncio.run(owners(words[0], Path(words[1])))
    else:
        asyncio.run(clients(words[0], int(words[1]), words[2]))
