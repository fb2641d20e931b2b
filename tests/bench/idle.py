"""What a manager and an agent cost that have nothing to do: a minute of `headroom manager` and `headroom agent`.

The cluster has one node without pods. The agent still samples each second and reports each minute, and the manager
renews its lease.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from deploy.local import ports
from shared.kube.resources import NODES
from tests.bench.agent import answers, cpu_of, running
from tests.bench.row import Measure, Row
from tests.support import eventually
from tests.support.apiserver import EmbeddedApiServer

SETTLED_SECONDS, IDLE_SECONDS = 30.0, 60.0
START_SECONDS = 60.0
HOUR_SECONDS = 3600
NODE = "idle"
_POLLING = """
import threading, time

def poll():
    while True:
        time.sleep(0.2)

for _ in range(9):
    threading.Thread(target=poll, daemon=True).start()
print(flush=True)
threading.Event().wait()
"""


def measures() -> tuple[Measure, ...]:
    return (idle,)


def idle() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        server = EmbeddedApiServer(Path(directory))
        stack.callback(server.close)
        server.client().create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        amounts = {"cpu": "4", "memory": "16Gi"}
        status = {"status": {"allocatable": amounts, "capacity": amounts}}
        server.client().patch(NODES, NODE, status, subresource="status")
        given = f"--kubeconfig={server.kubeconfig}"
        agent_flags = (given, f"--node-name={NODE}", f"--state-dir={directory}/agent")
        processes = {
            "manager": stack.enter_context(_ready("manager", given)),
            "agent": stack.enter_context(_ready("agent", *agent_flags)),
            "polling": stack.enter_context(running(_POLLING)),
        }
        time.sleep(SETTLED_SECONDS)
        began, before = time.monotonic(), {name: cpu_of(each) for name, each in processes.items()}
        time.sleep(IDLE_SECONDS)
        hours = (time.monotonic() - began) / HOUR_SECONDS
        spent = {name: (cpu_of(each) - before[name]) / hours for name, each in processes.items()}
    for name in ("manager", "agent"):
        yield Row(
            figure=f"idle {name} of a cluster with one node",
            value=spent[name],
            unit="s CPU an hour",
            target=None,
            baseline="nine threads of plain Python that each look five times a second",
            baseline_value=spent["polling"],
            note=f"{IDLE_SECONDS:g} s of real time, {SETTLED_SECONDS:g} s after the start",
        )


@contextmanager
def _ready(program: str, *flags: str) -> Iterator[psutil.Process]:
    """The command, from when it is ready."""
    listen = f"127.0.0.1:{ports.free()}"
    command = [str(Path(sys.executable).with_name("headroom")), program, *flags, f"--listen={listen}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        try:
            eventually(lambda: answers(f"http://{listen}/readyz"), START_SECONDS, 0.2)
            yield psutil.Process(child.pid)
        finally:
            child.terminate()
            child.wait(START_SECONDS)
