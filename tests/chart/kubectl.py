"""kubectl as tests of the chart use it."""

import os
import subprocess
from pathlib import Path


class Kubectl:
    """The real program on one cluster, as an administrator."""

    def __init__(self, binary: Path, kubeconfig: Path) -> None:
        self._binary = binary
        self._environment = os.environ | {"KUBECONFIG": str(kubeconfig)}

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
        listed = self.must("api-resources", "--verbs=list", "--output=name").split()
        passing = {"events", "events.events.k8s.io", "componentstatuses", "endpointslices.discovery.k8s.io"}
        columns = "custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name"
        kinds = ",".join(sorted(set(listed) - passing))
        return set(self.must("get", kinds, "--all-namespaces", "--no-headers", "--output", columns).splitlines())
