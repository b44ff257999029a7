"""`main`: executes a command that the kernel kills when the process that started it dies, for whatever reason.

Run as a script: `python -I -S tether.py PARENT COMMAND ...`. The setting survives exec and belongs to the *thread* that started
the command, so the starter must be a thread that lives as long as its process (`process.py`).
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        raise SystemExit("the starter died before the server started")
    os.execv(command[0], command)  # noqa: S606 - the command is ours


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
