"""Records what real services use in each second, in the form of `seconds.csv.gz`.

`python -m tests.bench.record_seconds FILE` takes root, cgroups v1, a JDK, a C compiler, and PostgreSQL with pgbench.
Each service runs in the cgroup of a pod of its own, which the agent's sampler reads.
"""

import argparse
import contextlib
import csv
import gzip
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import urllib3

from agent.metric_cache.series import Usage
from agent.metrics_advisor.cgroup import Readings
from agent.metrics_advisor.cgroups import Layout
from agent.metrics_advisor.files import Descriptors
from agent.metrics_advisor.pod_cgroups import PodCgroups
from deploy.local import ports
from shared.api.core import Pod, PodStatus
from shared.api.meta import ObjectMeta
from shared.names import KubeQoS
from tests.bench.agent import pod_tree
from tests.support import eventually

MINUTES = 25
END_SECONDS = 30.0
MOST_REQUESTS_PER_SECOND, PERIOD_SECONDS = 40, 420
POSTGRES_USER = "postgres"  # PostgreSQL refuses to run as root
POSTGRES_PROGRAMS = "/usr/lib/postgresql/*/bin"
_JOIN = 'for file in $PROCS_FILES; do echo $$ > "$file" || exit 1; done; exec "$@"'
_SERVER = """
import hashlib, http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        answer = hashlib.sha256(bytes(1 << 20)).digest()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
_HEAP = """
public class Heap {
    public static void main(String[] arguments) throws Exception {
        byte[][] kept = new byte[256][];
        for (int turn = 0; ; turn++) {
            kept[turn % kept.length] = new byte[64 << 10];
            Thread.sleep(10);
        }
    }
}
"""
_BUILD = """
cd "$1"
for number in $(seq 4000); do
    echo "int f$number(int n) { int sum = 0; for (int i = 0; i < n; i++) sum += (i ^ $number) * n; return sum; }"
done > program.c
while :; do
    cc -O2 -c program.c -o program.o
    sleep $((60 + $(od -An -N1 -tu1 /dev/urandom) / 4))
done
"""
_DATABASE = """
set -e
cd "$1"
PATH=$PATH:$(echo $2)
initdb --auth=trust --pgdata=data > /dev/null
postgres -D data -k "$PWD" -c listen_addresses= -c shared_buffers=16MB > log 2>&1 &
until pg_isready --quiet --host="$PWD"; do sleep 1; done
pgbench --quiet --initialize --scale=2 --host="$PWD" postgres 2> /dev/null
pgbench --time=1000000 --rate=10 --client=2 --host="$PWD" postgres > /dev/null 2>&1 &
while sleep 180; do
    psql --quiet --host="$PWD" postgres -c 'SELECT sum(sqrt(a.aid + b.aid)) FROM pgbench_accounts a, pgbench_accounts b
        WHERE b.aid < 50' > /dev/null
done
"""


def services(directory: Path, port: int) -> dict[str, Sequence[str]]:
    """The command of each service; what it keeps is in a directory of its own."""
    heap, build, database = (directory / name for name in ("heap", "build", "database"))
    for each in (heap, build, database):
        each.mkdir()
    (heap / "Heap.java").write_text(_HEAP)
    subprocess.run(["javac", "Heap.java"], cwd=heap, check=True)
    directory.chmod(0o755)
    shutil.chown(database, POSTGRES_USER, POSTGRES_USER)
    as_postgres = ("setpriv", f"--reuid={POSTGRES_USER}", f"--regid={POSTGRES_USER}", "--clear-groups")
    return {
        "latency": (sys.executable, "-c", _SERVER, str(port)),
        "heap": ("java", "-Xmx64m", "-XX:+UseSerialGC", "-cp", str(heap), "Heap"),
        "build": ("sh", "-c", _BUILD, "build", str(build)),
        "database": (*as_postgres, "sh", "-c", _DATABASE, "database", str(database), POSTGRES_PROGRAMS),
    }


def record(commands: Mapping[str, Sequence[str]], seconds: int, file: Path) -> None:
    """Runs each command in a cgroup of its own, and writes what it uses, once a second.

    Raises RuntimeError where no cgroup can be made, or if a command ends early.
    """
    uids = {name: str(uuid.uuid4()) for name in commands}
    status = PodStatus(qos_class=KubeQoS.BURSTABLE)
    pods = [Pod(metadata=ObjectMeta(name=name, uid=uid), status=status) for name, uid in uids.items()]
    with contextlib.ExitStack() as stack:
        layout = stack.enter_context(pod_tree(list(uids.values())))
        if layout is None:
            raise RuntimeError("no cgroups of v1 can be made here")
        running = {
            name: stack.enter_context(_running(command, _procs_files(layout, uids[name])))
            for name, command in commands.items()
        }
        reader = stack.enter_context(contextlib.closing(PodCgroups(layout, Descriptors())))
        table = csv.writer(stack.enter_context(gzip.open(file, "wt", newline="")), lineterminator="\n")
        columns = (f"{name}_{column}" for column in ("cpu_millicores", "memory_mib") for name in uids)
        table.writerow(["ts", *columns])
        begun = time.monotonic()
        for second in range(seconds + 1):  # the first reading has no rate yet
            time.sleep(max(0.0, begun + second - time.monotonic()))
            ended = [name for name, process in running.items() if process.poll() is not None]
            if ended:
                raise RuntimeError(f"{', '.join(ended)} ended after {second} s")
            readings: Readings = {}
            found = reader.sample(pods, time.monotonic(), os.cpu_count() or 1, readings).pods
            usages = [found.get(uid) for uid in uids.values()]
            table.writerow([second, *map(_millicores, usages), *map(_mebibytes, usages)])


def _millicores(usage: Usage | None) -> str:
    return "" if usage is None else f"{usage.cpu_cores * 1000:.0f}"


def _mebibytes(usage: Usage | None) -> str:
    return "" if usage is None else f"{usage.memory_bytes / 2**20:.1f}"


def _procs_files(layout: Layout, uid: str) -> list[Path]:
    hierarchy = layout.hierarchy
    roots = {root for root in (*hierarchy.roots.values(), hierarchy.throttling, hierarchy.pressure) if root}
    return [root / layout.pod_path(KubeQoS.BURSTABLE, uid) / "cgroup.procs" for root in roots]


@contextlib.contextmanager
def _running(command: Sequence[str], procs_files: Sequence[Path]) -> Iterator[subprocess.Popen[bytes]]:
    """A process in these cgroups; at the end no process is left in them."""
    joining = {**os.environ, "PROCS_FILES": " ".join(map(str, procs_files))}
    process = subprocess.Popen(["sh", "-c", _JOIN, "sh", *command], env=joining)

    def is_empty() -> bool:
        left = {int(pid) for file in procs_files for pid in file.read_text().split()} - {0}
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    try:
        yield process
    finally:
        process.kill()
        process.wait()
        eventually(is_empty, END_SECONDS)


def _request(port: int, stopped: threading.Event) -> None:
    """Requests at a rate that rises and falls."""
    begun = time.monotonic()
    with urllib3.PoolManager() as pool:
        while True:
            share = (1 - math.cos(2 * math.pi * (time.monotonic() - begun) / PERIOD_SECONDS)) / 2
            if stopped.wait(1 / (1 + MOST_REQUESTS_PER_SECOND * share)):
                return
            with contextlib.suppress(urllib3.exceptions.HTTPError):  # the server has not begun yet, or ends
                pool.request("GET", f"http://127.0.0.1:{port}/", retries=False)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    options = parser.parse_args(arguments)
    port, stopped = ports.free(), threading.Event()
    requests = threading.Thread(target=_request, args=(port, stopped))
    requests.start()
    try:
        with tempfile.TemporaryDirectory() as directory:
            record(services(Path(directory), port), round(options.minutes * 60), options.file)
    finally:
        stopped.set()
        requests.join()


if __name__ == "__main__":
    main()
