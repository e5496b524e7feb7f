"""`python -m examples.mortal MODULE ...` runs a module as somebody whom file permissions bind.

Tests often run as root in a container, and root may write everywhere: nothing would ever be denied. On
Linux that is one capability, and a process can give it up for good. Elsewhere, and for others, it does
nothing.
"""

import ctypes
import os
import sys

PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2


def give_up() -> None:
    """What is dropped here is lost by the next exec."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_CAPBSET_DROP)")


if __name__ == "__main__":
    give_up()
    os.execv(sys.executable, [sys.executable, "-m", *sys.argv[1:]])
