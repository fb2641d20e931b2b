"""Two releases on a registry, one minor version apart, for a node to install from.

`make release` makes them, upon the stand-in for the base image, and signs them with a key of their own. They are kept
by a key of all that they are made from. The registry's address is of the loopback network, where containerd speaks
HTTP: it serves at the same address on this machine and in the network of each node.
"""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.image.release import CHART
from tests.apiserver import binaries
from tests.apiserver.binaries import Unavailable
from tests.image import registry, releasing
from tests.image.releasing import VERSION, Released
from tests.node import tools
from tests.node.cluster import NodeCluster
from tests.node.images import ROOT, Builder

ADDRESS = "127.77.0.1:5000"
REPOSITORY = f"{ADDRESS}/platform"
NEXT_VERSION = "0.2.0" if VERSION.startswith("0.1.") else f"{VERSION.partition('.')[0]}.99.0"


@dataclass(frozen=True)
class TwoReleases:
    """What was released, by version, and the registry's program and folder."""

    by_version: Mapping[str, Released]
    program: Path
    folder: Path

    @contextmanager
    def served(self, cluster: NodeCluster) -> Iterator[None]:
        """By a registry on this machine, and one in the network of each node."""
        with ExitStack() as serving:
            for within in ((), *map(cluster.in_network, cluster.nodes)):
                serving.enter_context(registry.serving(self.program, self.folder, ADDRESS, within))
            yield


def made(environment: Mapping[str, str]) -> TwoReleases:
    """Raises Unavailable."""
    cache = binaries.cache_home(environment) / "node"
    programs = registry.tools(environment) | {"helm": binaries.provided("helm", environment)}
    with binaries.locked(cache / "lock"):
        builder = Builder(cache, tools.unpacked(cache))
        sources = [
            *sorted(file for file in CHART.rglob("*") if file.is_file()),
            *sorted((ROOT / "deploy/image").glob("*")),
        ]
        folder = cache / f"releases-{builder.key(more=[file for file in sources if file.is_file()])}"
        if not folder.exists():
            for old in cache.glob("releases-*"):
                shutil.rmtree(old)
            unfinished = folder.with_name("releases-unfinished")
            unfinished.mkdir()
            _make(programs, builder, unfinished)
            unfinished.rename(folder)
    versions = {version: _released(version, folder, programs) for version in (VERSION, NEXT_VERSION)}
    return TwoReleases(versions, programs["registry"], folder)


def _make(programs: dict[str, Path], builder: Builder, folder: Path) -> None:
    print("making two releases", file=sys.stderr, flush=True)
    releasing.make_key(programs, folder)
    with registry.serving(programs["registry"], folder, ADDRESS):
        base = f"{ADDRESS}/library/python:base"
        builder.push_base(base)
        options = (f"--registry={REPOSITORY}", f"--base={base}", "--insecure", f"--key={folder / 'cosign.key'}")
        for version in (VERSION, NEXT_VERSION):
            source = releasing.checkout(folder / f"source-{version}", version)
            architecture = "--architectures=amd64"
            done = releasing.make(programs, source, *options, architecture, version=version)
            if done.returncode:
                raise Unavailable(f"no release {version}: {done.stderr}")
            shutil.copytree(source / "dist" / "release" / version, folder / version, ignore=_LAYOUTS)
            shutil.rmtree(source)


_LAYOUTS = shutil.ignore_patterns("headroom-agent", "headroom-manager", "chart")


def _released(version: str, folder: Path, programs: dict[str, Path]) -> Released:
    return Released(folder / version, ADDRESS, REPOSITORY, folder / "cosign.pub", programs, folder)


if __name__ == "__main__":
    made(os.environ)
