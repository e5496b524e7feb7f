"""Runs a command for as long as our stdin is open: `python -m bench.leash COMMAND...`. So no worker
outlives the bench, however that ends. Prints the command's process id."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

PATIENCE = 5.0  # seconds from the request to the order


def main() -> int:
    process = subprocess.Popen(
        sys.argv[1:], stdin=subprocess.DEVNULL, stdout=sys.stderr, process_group=0
    )
    print(process.pid, flush=True)
    threading.Thread(target=end, args=[process], daemon=True).start()
    return process.wait()


def end(process: subprocess.Popen[bytes]) -> None:
    sys.stdin.read()
    tell(process, signal.SIGTERM)
    threading.Timer(PATIENCE, tell, [process, signal.SIGKILL]).start()


def tell(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


if __name__ == "__main__":
    os._exit(main())
