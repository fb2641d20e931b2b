"""Finds the binaries of a real control plane, and builds those that are missing from their Go modules.

Each comes from the folder in KUBEBUILDER_ASSETS (envtest's convention) or from PATH; otherwise it is built once, into a
cache folder named after what it was built from, out of a module beside this file that names it as a tool.
"""

import contextlib
import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.errors import HeadroomError

MODULES = Path(__file__).parent
KUBERNETES_TOOLS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
VARIABLE_ASSETS = "KUBEBUILDER_ASSETS"
_GO_DIRECTIVE = re.compile(r"^go (\d+)\.(\d+)", re.MULTILINE)
_KUBERNETES_VERSION = re.compile(r"^(?:require)?\s+k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)", re.MULTILINE)


class Unavailable(HeadroomError):
    """A binary is neither here nor to be had."""


@dataclass(frozen=True)
class Tool:
    """A binary, and the package of the module in `module` that it is built from."""

    name: str
    package: str
    module: Path
    tags: str = ""


# Signs people in before the manager's page.
OAUTH2_PROXY = Tool("oauth2-proxy", "github.com/oauth2-proxy/oauth2-proxy/v7", MODULES / "oauth2-proxy")


def tools(minor: str | None, go: tuple[int, int], more: Sequence[str] = ()) -> list[Tool]:
    """Everything a control plane needs, of one minor of Kubernetes, `more` programs of Kubernetes itself, and what the
    chart and its dashboards are tried with.

    Raises Unavailable for a minor that is not known.
    """
    kubernetes = MODULES / f"kubernetes-{minor}" if minor else _newest(go)
    if not (kubernetes / "go.mod").exists():
        known = ", ".join(sorted(path.name.removeprefix("kubernetes-") for path in MODULES.glob("kubernetes-*")))
        raise Unavailable(f"KUBERNETES={minor}: not one of {known}")
    return [
        *(Tool(name, f"k8s.io/kubernetes/cmd/{name}", kubernetes) for name in (*KUBERNETES_TOOLS, *more)),
        Tool("etcd", "go.etcd.io/etcd/server/v3", MODULES / "etcd"),
        Tool("helm", "helm.sh/helm/v4/cmd/helm", MODULES / "helm"),
        # Without the clients of clouds, by which it would discover what to scrape.
        *(
            Tool(name, f"github.com/prometheus/prometheus/cmd/{name}", MODULES / "prometheus", "remove_all_sd")
            for name in ("prometheus", "promtool")
        ),
    ]


def assets(environment: Mapping[str, str], more: Sequence[str] = ()) -> Path:
    """A folder with every tool, made of links where they stand in several; with `more` (`kubelet`), too.

    Raises Unavailable.

    KUBERNETES=1.35 asks for that minor: then nothing of Kubernetes itself is taken from elsewhere.
    """
    minor = environment.get("KUBERNETES") or None
    given = environment.get(VARIABLE_ASSETS, "")
    wanted = tools(minor, _go_version(environment), more)
    built_anyway = (*KUBERNETES_TOOLS, *more) if minor else ()
    found = {
        tool.name: path
        for tool in wanted
        if tool.name not in built_anyway
        and (path := shutil.which(tool.name, path=given) or shutil.which(tool.name, path=environment.get("PATH")))
    }
    cache = _cache(environment)
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / "lock"):
        places = {
            tool.name: Path(found[tool.name]) if tool.name in found else _built(tool, cache, environment)
            for tool in wanted
        }
        return _linked(places, cache)


def built(name: str, environment: Mapping[str, str]) -> Path | None:
    """The tool as it has been built before, None where it has not."""
    wanted = tools(environment.get("KUBERNETES") or None, _go_version(environment))
    target = next(_target(tool, _cache(environment)) for tool in wanted if tool.name == name)
    return target if target.exists() else None


def provided(name: str, environment: Mapping[str, str]) -> Path:
    """The tool as it is installed, or else built once. Raises Unavailable."""
    if found := shutil.which(name, path=environment.get("PATH")):
        return Path(found)
    wanted = tools(environment.get("KUBERNETES") or None, _go_version(environment))
    return built_once(next(tool for tool in wanted if tool.name == name), environment)


def needed_go(module: str) -> tuple[int, int]:
    """Of which version Go has to be to build from the module of this name."""
    return _needed_go(MODULES / module)


def built_once(tool: Tool, environment: Mapping[str, str], *, folder: str = "apiserver") -> Path:
    """A tool that is no part of a control plane. Those of another cache `folder` keep no others waiting.

    Raises Unavailable.
    """
    cache = cache_home(environment) / folder
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / "lock"):
        return _built(tool, cache, environment)


def cache_home(environment: Mapping[str, str]) -> Path:
    """Below which everything is kept that is built once."""
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headroom"


def _cache(environment: Mapping[str, str]) -> Path:
    return cache_home(environment) / "apiserver"


def _newest(go: tuple[int, int]) -> Path:
    """The module of the newest Kubernetes that this Go compiles."""
    modules = sorted(MODULES.glob("kubernetes-*"), key=lambda path: [int(part) for part in _minor(path)], reverse=True)
    fitting = [module for module in modules if _needed_go(module) <= go]
    return fitting[0] if fitting else modules[-1]


def _minor(module: Path) -> list[str]:
    return module.name.removeprefix("kubernetes-").split(".")


def _needed_go(module: Path) -> tuple[int, int]:
    found = _GO_DIRECTIVE.search((module / "go.mod").read_text())
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _go_version(environment: Mapping[str, str]) -> tuple[int, int]:
    """Of the installed Go; (0, 0) where there is none, which matters once something has to be built."""
    go = shutil.which("go", path=environment.get("PATH"))
    if go is None:
        return 0, 0
    said = subprocess.run([go, "env", "GOVERSION"], env=environment, capture_output=True, text=True, check=False).stdout
    found = re.match(r"go(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _built(tool: Tool, cache: Path, environment: Mapping[str, str]) -> Path:
    target = _target(tool, cache)
    if target.exists():
        return target
    go = shutil.which("go", path=environment.get("PATH"))
    if go is None:
        raise Unavailable(f"{tool.name} is not in {VARIABLE_ASSETS} or on PATH, and there is no Go to build it with")
    target.parent.mkdir(exist_ok=True)
    unfinished = target.with_name(f"{tool.name}.unfinished")
    print(f"building {tool.name} from {tool.module.name}, once; this takes minutes", file=sys.stderr, flush=True)
    # The toolchain that is installed, and exactly the versions of go.mod and go.sum.
    variables = {**environment, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}
    command = [go, "build", "-tags", tool.tags, "-ldflags", _linker_flags(tool), "-o", str(unfinished), tool.package]
    try:
        subprocess.run(command, cwd=tool.module, env=variables, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"{tool.name} cannot be built: {error}") from error
    unfinished.replace(target)
    return target


def _target(tool: Tool, cache: Path) -> Path:
    """Where it is built, named after all it is built from."""
    sources = (tool.module / "go.mod").read_bytes() + (tool.module / "go.sum").read_bytes()
    key = hashlib.sha256(sources + (_linker_flags(tool) + tool.tags).encode()).hexdigest()[:16]
    return cache / f"{tool.module.name}-{key}" / tool.name


def _linker_flags(tool: Tool) -> str:
    """Without symbols; Kubernetes learns its version here, as in its own releases."""
    flags = "-s -w"
    if found := _KUBERNETES_VERSION.search((tool.module / "go.mod").read_text()):
        version = "-X k8s.io/component-base/version"
        flags += f" {version}.gitVersion={found[1]} {version}.gitMajor={found[2]} {version}.gitMinor={found[3]}"
    return flags


def _linked(places: Mapping[str, Path], cache: Path) -> Path:
    key = hashlib.sha256("\n".join(map(str, places.values())).encode()).hexdigest()[:16]
    folder = cache / f"assets-{key}"
    folder.mkdir(exist_ok=True)
    for name, path in places.items():
        link = folder / name
        if not link.exists():
            link.unlink(missing_ok=True)
            link.symlink_to(path)
    return folder


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """One build at a time."""
    with file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
