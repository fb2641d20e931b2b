"""`python -m tests.node up` runs a node until Ctrl-C; `build` makes what it needs; `check` says what is wanting.

A second word is the kind of node: `v1`, `uml` or `uml-systemd`.
"""

import os
import sys
import tempfile
from pathlib import Path

from shared import termination
from shared.errors import HeadroomError
from tests.apiserver.binaries import Unavailable
from tests.node.cluster import Parts, check_machine, not_run
from tests.node.layout import DEFAULT, Kind
from tests.node.release import Release, demo_values
from tests.node.starting import started

PORT = 6443
UNAVAILABLE = 3  # the exit status where the machine cannot have a node, through no fault of the code


def _up(kind: Kind) -> int:
    parts = Parts(os.environ, kind)
    stop = termination.event()
    with tempfile.TemporaryDirectory(prefix="headroom-logs-") as logs:
        _say("starting etcd, kube-apiserver, controllers, scheduler, containerd and kubelet")
        cluster = started(parts, Path(logs), PORT)
        try:
            _say("installing the chart")
            Release(cluster, demo_values()).install()
            _say(f"logs:            {logs} (removed at the end)")
            _say(f"kubeconfig:      {cluster.kubeconfig}")
            _say(f"                 export KUBECONFIG={cluster.kubeconfig} PATH={parts.assets}:$PATH")
            _say("tour:            docs/how-to/real-node.md; Ctrl-C ends all of it")
            stop.wait()
        finally:
            _say("stopping")
            cluster.close()
    return 0


def main(arguments: list[str]) -> int:
    try:
        match arguments:
            case [("check" | "build" | "up") as goal, *kinds] if len(kinds) < 2 and set(kinds) <= set(Kind):
                kind = Kind(kinds[0]) if kinds else DEFAULT
                if goal == "up":
                    return _up(kind)
                if goal == "check":
                    check_machine(kind)
                else:
                    Parts(os.environ, kind)
                    for line in not_run(kind):
                        _say(line)
                return 0
    except Unavailable as error:
        _say(f"NOT RUN: a node cannot be made here: {error}")
        return UNAVAILABLE
    except HeadroomError as error:
        _say(str(error))
        return 1
    _say(f"usage: python -m tests.node up | build | check [{' | '.join(Kind)}]")
    return 2


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
