"""The agent runs on every node, so what it loads is paid for everywhere."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from agent.metrics_advisor.cgroups import Driver, Version
from deploy.local import ports
from tests.support import eventually
from tests.unit.agent.trees import Counters, Tree

# Measured: the official client 60 MB, FastAPI with pydantic 20 MB and 0.25 s, the others 0.01 to 0.1 s each.
HEAVY = ("kubernetes", "fastapi", "pydantic", "rich", "typer", "psutil", "yaml", "httpx", "manager", "deploy")

# The daemon as a pod of the cluster runs it; it says where it listens, and what it has loaded whenever it is told to.
DAEMON = """
import json, os, signal, sys
from agent import main
from agent.settings import AgentSettings
from shared.kube.config import Connection

def tell(*_):
    os.write(1, (json.dumps(sorted({name.partition(".")[0] for name in sys.modules})) + "\\n").encode())

signal.signal(signal.SIGUSR1, tell)
settings = AgentSettings(node_name="n", listen=sys.argv[1], state_dir=sys.argv[2], cgroup_root=sys.argv[3])
sys.exit(main.run(settings, Connection("http://127.0.0.1:9")))
"""


def loaded(daemon: subprocess.Popen[str]) -> set[str]:
    os.kill(daemon.pid, signal.SIGUSR1)
    assert daemon.stdout is not None
    return set(json.loads(daemon.stdout.readline()))


def get(url: str) -> httpx.Response:
    return httpx.get(url, timeout=60)


def answers(url: str) -> httpx.Response | None:
    try:
        return get(url)
    except httpx.TransportError:
        return None


def test_an_agent_in_a_cluster_loads_what_it_needs_and_the_api_when_it_is_asked(tmp_path: Path) -> None:
    port = ports.free()
    url = f"http://127.0.0.1:{port}"
    cgroups = Tree(tmp_path / "cgroup", Version.V2, Driver.SYSTEMD)
    cgroups.write(cgroups.pod_path(), Counters())
    command: list[Any] = [sys.executable, "-c", DAEMON, f"127.0.0.1:{port}", tmp_path, cgroups.root]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as daemon:
        try:
            eventually(lambda: answers(f"{url}/healthz"))
            eventually(lambda: 'ticks_total{outcome="stored"}' in get(f"{url}/metrics").text)
            assert get(f"{url}/readyz").status_code == 503
            assert not loaded(daemon).intersection({*HEAVY, "starlette"})
            assert get(f"{url}/api/v1/node").json()["name"] == "n"
            assert get(f"{url}/openapi.json").json()["info"]["description"] == "Usage and prediction of node n."
            in_use = loaded(daemon)
            assert "starlette" in in_use
            assert not in_use.intersection(HEAVY)
        finally:
            os.kill(daemon.pid, signal.SIGTERM)
        assert daemon.wait(60) == 0


# Prints the KiB that stay after arrays of 8 MiB are freed, once a larger one has been, while a small one lives on.
ARRAYS = """
import resource
from pathlib import Path
from shared import memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 10

memory.return_large_blocks()
before = resident()
bytearray(b"1") * (16 << 20)
large, small = [], []
for _ in range(3):
    large.append(bytearray(b"1") * (8 << 20))
    small.append(bytearray(b"1") * 1000)
del large
print(resident() - before)
"""


def test_the_kernel_gets_large_arrays_back_when_they_are_freed() -> None:
    kept = subprocess.run([sys.executable, "-c", ARRAYS], stdout=subprocess.PIPE, text=True, check=True)
    assert int(kept.stdout) < 1024
