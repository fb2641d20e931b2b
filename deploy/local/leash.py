"""Runs a program that does not outlive its parent: `python -m deploy.local.leash PARENT_PID TARGET ARGS`.

TARGET is a Python module, or the path of an executable, which replaces this process (on Linux the tie remains). An
executable gets SIGKILL: with SIGTERM, one that waits for its own server before it ends would wait forever, because both
get the signal.

A parent killed with -9 cannot signal its children, so the kernel does (Linux), or the child polls.
"""

import ctypes
import os
import runpy
import signal
import sys
import threading
import time

PR_SET_PDEATHSIG = 1
LOOK_SECONDS = 1.0


def tie_to(parent_pid: int, how: signal.Signals = signal.SIGTERM) -> None:
    """Makes this process get the signal `how` when its parent ends."""
    if sys.platform == "linux":
        # The signal comes when the *thread* that started this process ends, so that thread must live as long as its
        # process.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, how)
    else:
        threading.Thread(target=_watch, args=(parent_pid, how), name="leash", daemon=True).start()
    if os.getppid() != parent_pid:  # the parent ended before the tie took effect
        sys.exit(1)


def _watch(parent_pid: int, how: signal.Signals) -> None:
    while os.getppid() == parent_pid:
        time.sleep(LOOK_SECONDS)
    os.kill(os.getpid(), how)


if __name__ == "__main__":
    parent, target, *arguments = sys.argv[1:]
    is_executable = os.sep in target
    tie_to(int(parent), signal.SIGKILL if is_executable else signal.SIGTERM)
    if is_executable:
        os.execv(target, [target, *arguments])
    sys.argv = [target, *arguments]
    runpy.run_module(target, run_name="__main__", alter_sys=True)
