"""`python -m examples.unprivileged MODULE ...` runs a module that file permissions apply to.

Tests often run as root in a container, and root may write everywhere: no write would ever be denied. On
Linux, root has this right by two capabilities, which a process can drop for good. On other systems, and
for other users, this module changes nothing.
"""

import ctypes
import os
import sys

PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2


def drop_file_capabilities() -> None:
    """Drop the capabilities that bypass file permissions, from the next exec on."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_CAPBSET_DROP)")


if __name__ == "__main__":
    drop_file_capabilities()
    os.execv(sys.executable, [sys.executable, "-m", *sys.argv[1:]])
