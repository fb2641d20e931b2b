"""kubectl where it is installed, and the same requests through HTTP where it is not."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from shared.kube.client import Client
from shared.kube.resources import PODS

KUBECTL = shutil.which("kubectl")
TIMEOUT_SECONDS = 60


class Kubectl:
    """The commands the journeys use."""

    def __init__(self, kubeconfig: Path, client: Client) -> None:
        self._kubeconfig = kubeconfig
        self._client = client

    def run(self, *arguments: str, stdin: str = "") -> str:
        """Any command; for tests that are about kubectl itself."""
        assert KUBECTL is not None
        done = subprocess.run(
            [KUBECTL, "--kubeconfig", str(self._kubeconfig), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr or done.stdout}"
        return done.stdout

    def apply(self, pod: dict[str, Any]) -> None:
        if KUBECTL:
            self.run("apply", "-f", "-", stdin=msgspec.json.encode(pod).decode())
        else:
            self._client.create(PODS, pod, pod["metadata"]["namespace"])

    def delete_pod(self, name: str) -> None:
        if KUBECTL:
            self.run("delete", "pod", name, "--wait=false")
        else:
            self._client.delete(PODS, name, "default")
