"""Where the parts of a real control plane come from."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.apiserver import binaries
from tests.apiserver.binaries import Unavailable

NAMES = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "etcd",
    "helm",
    "prometheus",
    "promtool",
)


def executables(folder: Path, *names: str) -> Path:
    folder.mkdir()
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    """Of a machine without Go and without anything of Kubernetes."""
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": str(tmp_path / "nothing")}


def test_the_folder_of_envtest_comes_before_path(tmp_path: Path, environment: Mapping[str, str]) -> None:
    given = executables(tmp_path / "given", "kube-apiserver", "etcd")
    path = executables(tmp_path / "path", *NAMES)
    folder = binaries.assets({**environment, "KUBEBUILDER_ASSETS": str(given), "PATH": str(path)})
    assert {name: (folder / name).resolve().parent for name in NAMES} == {
        name: given if name in ("kube-apiserver", "etcd") else path for name in NAMES
    }


def test_what_is_neither_there_nor_to_be_built_is_named(tmp_path: Path, environment: Mapping[str, str]) -> None:
    given = executables(tmp_path / "given", *(name for name in NAMES if name != "etcd"))
    with pytest.raises(Unavailable, match="etcd is not in KUBEBUILDER_ASSETS or on PATH"):
        binaries.assets({**environment, "KUBEBUILDER_ASSETS": str(given)})


def test_what_was_built_is_found_again(tmp_path: Path, environment: Mapping[str, str]) -> None:
    assert binaries.built("helm", environment) is None
    (module,) = (tool.module for tool in binaries.tools(None, (0, 0)) if tool.name == "helm")
    path = executables(tmp_path / "path", *(name for name in NAMES if name != "helm"), "go")
    (path / "go").write_text('#!/bin/sh\n[ "$1" = env ] || { while [ "$1" != -o ]; do shift; done; echo > "$2"; }\n')
    folder = binaries.assets({**environment, "PATH": str(path)})
    assert module.name in str((folder / "helm").resolve())
    assert binaries.built("helm", environment) == (folder / "helm").readlink()


def test_an_asked_for_minor_is_built_whatever_else_is_there(tmp_path: Path, environment: Mapping[str, str]) -> None:
    given = executables(tmp_path / "given", *NAMES)
    with pytest.raises(Unavailable, match="kube-apiserver"):
        binaries.assets({**environment, "KUBEBUILDER_ASSETS": str(given), "KUBERNETES": "1.36"})


def test_an_unknown_minor_is_refused_with_those_that_are_known(environment: Mapping[str, str]) -> None:
    with pytest.raises(Unavailable, match=r"KUBERNETES=1\.2: not one of .*1\.36"):
        binaries.assets({**environment, "KUBERNETES": "1.2"})


@pytest.mark.parametrize(("go", "minor"), [((1, 99), "1.36"), ((1, 26), "1.36"), ((1, 25), "1.35"), ((1, 0), "1.35")])
def test_the_newest_kubernetes_that_the_installed_go_compiles_is_taken(go: tuple[int, int], minor: str) -> None:
    assert binaries.tools(None, go)[0].module.name == f"kubernetes-{minor}"
