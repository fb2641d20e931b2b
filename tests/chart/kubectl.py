"""kubectl as tests of the chart use it."""

import os
import subprocess
from pathlib import Path

from tests.support import eventually


class Kubectl:
    """The real program on one cluster, as an administrator."""

    def __init__(self, binary: Path, kubeconfig: Path) -> None:
        self._binary = binary
        self._environment = os.environ | {"KUBECONFIG": str(kubeconfig), "GOGC": "off"}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Whatever comes of it."""
        command = [str(self._binary), *arguments]
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)

    def must(self, *arguments: str) -> str:
        """What it prints; it has to succeed."""
        done = self.run(*arguments)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def everything(self) -> set[str]:
        """Every object there is, as "kind namespace/name", but for what a control plane turns over by itself."""
        columns = "custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name"

        def listed() -> subprocess.CompletedProcess[str] | None:
            """None where kinds have come or gone meanwhile: kubectl refuses what it does not find any more."""
            kinds = self._kinds()
            shown = ("--ignore-not-found", "--all-namespaces", "--no-headers", "--output", columns)
            done = self.run("get", ",".join(kinds), *shown)
            return done if done.returncode == 0 or kinds == self._kinds() else None

        done = eventually(listed)
        assert done is not None
        assert done.returncode == 0, done.stderr
        return set(done.stdout.splitlines())

    def _kinds(self) -> list[str]:
        passing = {"events", "events.events.k8s.io", "componentstatuses", "endpointslices.discovery.k8s.io"}
        return sorted(set(self.must("api-resources", "--verbs=list", "--output=name").split()) - passing)
