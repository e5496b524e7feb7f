"""Run a command as long as stdin is open: `python -m bench.process_guard COMMAND...`. No worker
outlives the bench, however the bench ends. Prints the command's process id."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

TIMEOUT = 5.0  # seconds from SIGTERM to SIGKILL


def main() -> int:
    process = subprocess.Popen(
        sys.argv[1:], stdin=subprocess.DEVNULL, stdout=sys.stderr, process_group=0
    )
    print(process.pid, flush=True)
    threading.Thread(target=end, args=[process], daemon=True).start()
    return process.wait()


def end(process: subprocess.Popen[bytes]) -> None:
    sys.stdin.read()
    send_signal(process, signal.SIGTERM)
    threading.Timer(TIMEOUT, send_signal, [process, signal.SIGKILL]).start()


def send_signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


if __name__ == "__main__":
    os._exit(main())
