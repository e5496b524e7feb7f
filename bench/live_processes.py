"""The processes of the live cases.

server URL FILE            serve the dashboard, and write the port into a file
clients PORT COUNT FILE    follow all events with COUNT clients; create FILE when all are connected
pages PORT COUNT FILE      the same as the dashboard's pages do
owners PORT FOLDER         follow the jobs in FOLDER/ids-N with one client each; create there-N when
                           all are connected, and ended-N when each has received its job's end
"""

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


async def pages(port: str, count: int, ready: str) -> None:
    there: asyncio.Queue[None] = asyncio.Queue()
    tasks = [asyncio.create_task(page(port, there)) for _ in range(count)]
    for _ in range(count):
        await there.get()
    Path(ready).write_text("ready")
    await asyncio.gather(*tasks)


async def page(port: str, there: "asyncio.Queue[None]") -> None:
    """Follow an event stream and reconnect when it ends, without parsing the events."""
    after = b""
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        address = b"/api/v1/events?glance=true" + after
        writer.write(
            b"GET " + address + b" HTTP/1.1\r\nHost: 127.0.0.1:" + port.encode() + b"\r\n\r\n"
        )
        while not after:
            after = _position(await reader.read(65_536))
            if after:
                there.put_nowait(None)
        while (found := await reader.read(65_536)) and not found.endswith(b"\r\n0\r\n\r\n"):
            after = _position(found) or after
        writer.close()


def _position(text: bytes) -> bytes:
    """Return the query that continues after the last event."""
    at = text.rfind(b"\nid: ")
    return b"" if at < 0 else b"&after=" + text[at + 5 : text.index(b"\n", at + 5)]


async def job_followers(port: str, folder: Path) -> None:
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
        (folder / f"ended-{number}").touch()


async def own(port: str, id: str, there: "asyncio.Queue[None]") -> None:
    """Follow a job until it has ended."""
    url = f"ws://127.0.0.1:{port}/api/v1/events?job={id}"
    async with connect(url, compression=None) as followed:
        await followed.recv()
        there.put_nowait(None)
        while json.loads(await followed.recv())["event"] != "job:complete":
            pass


def put(path: Path, text: str) -> None:
    """Write a file atomically, since another process waits for it."""
    path.with_suffix(".new").write_text(text)
    os.replace(path.with_suffix(".new"), path)


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "server":
        server(*words)
    elif what == "owners":
        asyncio.run(job_followers(words[0], Path(words[1])))
    else:
        follow = pages if what == "pages" else clients
        asyncio.run(follow(words[0], int(words[1]), words[2]))
