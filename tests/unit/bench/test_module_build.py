"""The sources of peers are had on a machine whose Go has never seen them."""

import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest

from tests.apiserver import module_build
from tests.apiserver.binaries import Tool, Unavailable
from tests.support.programs import NOT_INSTALLED, do_without

PEER, VERSION = "example.com/peer", "v1.2.3"


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    folder = tmp_path / "tool"
    folder.mkdir()
    (folder / "go.mod").write_text(f"module example.com/tool\n\ngo 1.21\n\nrequire {PEER} {VERSION}\n")
    return Tool("peer", PEER, folder)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of a Go with empty caches, whose module proxy is a folder."""
    if shutil.which("go") is None:
        do_without(f"go {NOT_INSTALLED}it alone downloads the modules of the bench's peers")
    served = tmp_path / "proxy" / PEER / "@v"
    served.mkdir(parents=True)
    module = f"module {PEER}\n"
    (served / f"{VERSION}.mod").write_text(module)
    (served / f"{VERSION}.info").write_text(json.dumps({"Version": VERSION}))
    with zipfile.ZipFile(served / f"{VERSION}.zip", "w") as file:
        file.writestr(f"{PEER}@{VERSION}/go.mod", module)
        file.writestr(f"{PEER}@{VERSION}/peer.go", "package peer\n")
    own = {
        "GOPROXY": f"file://{tmp_path}/proxy",
        "GOSUMDB": "off",
        "GOFLAGS": "-modcacherw",
        "GOMODCACHE": str(tmp_path / "modules"),
        "GOCACHE": str(tmp_path / "cache"),
        "GOTOOLCHAIN": "local",
    }
    return os.environ | own


def test_a_module_that_is_not_there_yet_is_downloaded(tool: Tool, environment: dict[str, str]) -> None:
    for _ in range(2):
        source = module_build.module_source(tool, PEER, environment)
        assert (source / "peer.go").read_text() == "package peer\n"


def test_a_module_that_cannot_be_had_is_said_to_be_missing(tool: Tool, environment: dict[str, str]) -> None:
    with pytest.raises(Unavailable, match="the source of peer cannot be had"):
        module_build.module_source(tool, PEER, environment | {"GOPROXY": "off"})
