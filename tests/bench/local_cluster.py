"""`headroom up` with hundreds of nodes: how long it takes until the last of them offers Mid."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import psutil

from deploy.local import ports
from deploy.top import progress
from manager.nodeside.answers import Nodes
from tests.bench.row import Measure, Row

NODES = 300
WITHIN_SECONDS = 120.0
LAST_SECONDS = 240.0  # what has not come by then is told as it is
LOOK_SECONDS = 2.0


def measures() -> tuple[Measure, ...]:
    return (_until_all_lend,)


def _until_all_lend() -> Iterator[Row]:
    port = ports.free()
    command = [str(Path(sys.executable).with_name("headroom")), "up", "--nodes", str(NODES), "-o", "json"]
    command += ["--port", "0", "--agent-port", "0", "--manager-port", str(port)]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as up:
        try:
            waiting = progress.starting(None, NODES)
            while waiting and time.monotonic() < began + LAST_SECONDS:
                time.sleep(LOOK_SECONDS)
                with contextlib.suppress(httpx.TransportError, httpx.HTTPStatusError):
                    answer = httpx.get(f"http://127.0.0.1:{port}/api/v1/nodes", timeout=10).raise_for_status()
                    waiting = progress.starting(msgspec.json.decode(answer.content, type=Nodes), NODES)
            seconds, cpu_seconds = time.monotonic() - began, _cpu_seconds(psutil.Process(up.pid))
        finally:
            up.terminate()
            up.wait(60)
    yield Row(
        figure=f"headroom up, {NODES} nodes, start until none waits for Mid",
        value=seconds,
        unit="s",
        target=WITHIN_SECONDS,
        baseline="CPU time of all its processes until then, over the machine's cores",
        baseline_value=cpu_seconds / (os.cpu_count() or 1),
        note=waiting,
    )


def _cpu_seconds(root: psutil.Process) -> float:
    """Of a process and all that it started and that still run."""
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            total += sum(process.cpu_times()[:2])
    return total
