"""The real kube-scheduler, beside a real API server."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from deploy.local import ports
from deploy.local.control_plane import SCHEDULER, binary
from deploy.local.ports import LOOPBACK
from tests.support.apiserver import ROOT


@contextlib.contextmanager
def running(
    configuration: dict[str, object], kubeconfig: Path, directory: Path, flags: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """kube-scheduler with this configuration, if it says nothing else without leader election; a test may kill it.

    Its log is in the directory.
    """
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        **configuration,
        "clientConnection": {"kubeconfig": str(kubeconfig)},
    }
    config, log = directory / "scheduler.yaml", directory / "kube-scheduler.log"
    config.write_text(yaml.safe_dump(document))
    arguments = (f"--config={config}", f"--bind-address={LOOPBACK}", f"--secure-port={ports.free()}", *flags)
    leash = (sys.executable, "-m", "deploy.local.leash", str(os.getpid()))
    with log.open("wb") as output:
        process = subprocess.Popen([*leash, str(binary(SCHEDULER)), *arguments], cwd=ROOT, stdout=output, stderr=output)
    yield process
    assert process.poll() in (None, -signal.SIGKILL), log.read_text()
    process.terminate()
    process.wait(20)
