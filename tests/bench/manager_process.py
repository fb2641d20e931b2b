"""A manager as a process of its own, so that its CPU time and memory are those of no one else.

`python -m tests.bench.manager_process SERVER SETTINGS` (JSON) starts one and prints its HTTP address. For each number
on a line of its standard input it waits until that many nodes have been decided about, and prints what it has used.
"""

import json
import resource
import sys
import time
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from manager.daemon_settings import DaemonSettings
from manager.main import Manager, collect_seldom
from shared import settings as settings_module
from shared import telemetry
from shared.clock import SystemClock
from shared.kube.client import Client
from shared.kube.config import Connection
from shared.names import Tier

_DECISIONS = "headroom_manager_decisions_total"
_POLL_SECONDS = 0.05


class Used(msgspec.Struct, frozen=True):
    """By this process since it was started, imports and all; `resident_bytes` now, `peak_bytes` at most.

    `private_bytes` are those resident ones that no other process shares (USS).
    """

    cpu_seconds: float
    resident_bytes: int
    private_bytes: int
    peak_bytes: int


def main(server: str, settings: dict[str, object]) -> None:
    collect_seldom()
    telemetry.configure_logging(level="warning", style="text")
    registry, clock = CollectorRegistry(), SystemClock()
    client = Client(Connection(server), "bench", clock=clock, registry=registry)
    manager = Manager(settings_module.combine(DaemonSettings, settings), client, clock, registry)
    # Asked for by its name, so that asking does not walk over the cluster.
    counter = registry.restricted_registry([_DECISIONS])
    manager.start()
    host, port = manager.address
    print(f"http://{host}:{port}", flush=True)

    def decisions() -> float:
        samples = [sample for metric in counter.collect() for sample in metric.samples]
        return sum(one.value for one in samples if one.name == _DECISIONS and one.labels["tier"] == Tier.MID)

    for line in sys.stdin:
        while decisions() < int(line):
            time.sleep(_POLL_SECONDS)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        used = Used(usage.ru_utime + usage.ru_stime, _resident_bytes(), _private_bytes(), usage.ru_maxrss << 10)
        print(msgspec.json.encode(used).decode(), flush=True)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _private_bytes() -> int:
    lines = (line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines())
    return sum(int(kilobytes) for name, kilobytes, *_ in lines if name.startswith("Private_")) << 10


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
