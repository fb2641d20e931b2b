"""A real registry on this machine, and the programs that a release is pushed, signed and looked at with.

Each program is installed, or else built once from its Go module.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from deploy.local import ports
from tests.apiserver import binaries
from tests.apiserver.binaries import Tool
from tests.support import eventually

_MODULES = Path(__file__).parent
ACTIONLINT = Tool("actionlint", "github.com/rhysd/actionlint/cmd/actionlint", _MODULES / "actionlint")
TOOLS = (
    Tool("registry", "github.com/distribution/distribution/v3/cmd/registry", _MODULES / "registry"),
    Tool("crane", "github.com/google/go-containerregistry/cmd/crane", _MODULES / "signing"),
    Tool("cosign", "github.com/sigstore/cosign/v2/cmd/cosign", _MODULES / "signing"),
)


def tools(environment: Mapping[str, str]) -> dict[str, Path]:
    """The programs by their names. Raises Unavailable."""
    found = {tool.name: shutil.which(tool.name, path=environment.get("PATH")) for tool in TOOLS}
    return {
        tool.name: Path(found[tool.name] or binaries.built_once(tool, environment, folder="image")) for tool in TOOLS
    }


@contextmanager
def serving(program: Path, folder: Path, address: str = "", within: Sequence[str] = ()) -> Iterator[str]:
    """The address, a free one unless it is given, of a registry that keeps its blobs in `folder`.

    `within` are the words that start a command elsewhere, as in another network.
    """
    address = address or f"127.0.0.1:{ports.free()}"
    environment = os.environ | {"OTEL_TRACES_EXPORTER": "none"}
    storage = {"filesystem": {"rootdirectory": str(folder / "blobs")}}
    with TemporaryDirectory() as own:
        configuration, log = Path(own) / "registry.yaml", Path(own) / "registry.log"
        configuration.write_text(yaml.safe_dump({"version": 0.1, "storage": storage, "http": {"addr": address}}))
        with log.open("w") as output:
            process = subprocess.Popen(
                [*within, program, "serve", configuration], env=environment, stdout=output, stderr=output
            )
        try:
            eventually(lambda: _listens(process, log))
            yield address
        finally:
            process.kill()
            process.wait()


def _listens(process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    return "listening on" in log.read_text()
