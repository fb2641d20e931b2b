"""Helm as tests use it: the real program on the real chart."""

import functools
import json
import os
import subprocess
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from deploy.local.identities import CHART, RELEASE
from shared import names

Manifest: TypeAlias = dict[str, Any]

PROFILES = sorted(CHART.glob("values-*.yaml"))  # of clouds and distributions
CI = [*sorted((CHART / "ci").glob("*.yaml")), *PROFILES]
# What every user has to set: where the image is.
IMAGE = ("--values", str(CHART / "ci" / "default-values.yaml"))
# A release without processes, for tests that are not about what those do: one machine has each port once.
QUIET = (*IMAGE, "--set", "manager.replicas=0", "--set-string", "agent.nodeSelector.none=there")


class Helm:
    """Helm with settings of its own in `home`; with a kubeconfig it also speaks to that cluster."""

    def __init__(self, binary: Path, home: Path, kubeconfig: Path | None = None) -> None:
        self._binary = binary
        self._rendered: dict[tuple[str, ...], str] = {}
        homes = {f"HELM_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        # A run is over before Go's garbage collector has been of any use, and that is a quarter of its CPU time.
        self._environment = os.environ | homes | {"KUBECONFIG": str(kubeconfig or home / "none"), "GOGC": "off"}

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Whatever comes of it."""
        command = [str(self._binary), *map(str, arguments)]
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)

    def must(self, *arguments: str | Path) -> str:
        """What it prints; it has to succeed."""
        done = self.run(*arguments)
        assert done.returncode == 0, f"helm {' '.join(map(str, arguments))}: {done.stderr}\n{done.stdout}"
        return done.stdout

    def template(self, *arguments: str | Path) -> str:
        """The chart rendered as the release of the tests, hooks included; the same values are rendered once."""
        asked = tuple(map(str, arguments))
        if asked not in self._rendered:
            self._rendered[asked] = self.must(
                "template", RELEASE, CHART, "--namespace", names.INSTALL_NAMESPACE, *IMAGE, *asked
            )
        return self._rendered[asked]

    def objects(self, *arguments: str | Path) -> list[Manifest]:
        """The rendered objects."""
        documents = map(_parsed, self.template(*arguments).split("\n---\n"))
        return [json.loads(document) for document in documents if document != "null"]

    def refusal(self, *arguments: str) -> str:
        """Why these values are not accepted."""
        done = self.run("template", RELEASE, CHART, *IMAGE, *arguments)
        assert done.returncode != 0, f"accepted: {arguments}"
        return done.stderr


@functools.cache
def _parsed(document: str) -> str:
    """A YAML document as JSON: most documents of a chart are the same with other values."""
    return json.dumps(yaml.load(document, Loader=yaml.CSafeLoader))


def one(objects: list[Manifest], kind: str, name: str) -> Manifest:
    """The object of that kind and name."""
    (found,) = [item for item in objects if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    return found


def pods(objects: list[Manifest]) -> dict[str, Manifest]:
    """Every pod template by its component, with its metadata."""
    templates = [item["spec"]["template"] for item in objects if item["kind"] in ("DaemonSet", "Deployment", "Job")]
    return {template["metadata"]["labels"]["app.kubernetes.io/component"]: template for template in templates}


def containers(pod: Manifest) -> list[Manifest]:
    """All containers of a pod template, init containers first."""
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
