"""What a component's processes import is in its image, and nothing of Headroom's that they do not."""

import importlib.metadata
import sys
import tomllib
from pathlib import Path

import grimp
import pytest
from packaging.utils import canonicalize_name

from deploy.image import locked

ROOT = Path(__file__).parents[2]
ENTRY_POINTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
OURS = ("agent", "deploy", "manager", "shared")

STARTED = {
    "agent": ("agent.__main__", "agent.enforcer.__main__", "shared.certificates"),
    "manager": ("manager.__main__", "deploy.cleanup"),
}
PLUGINS = {"agent": ("predictors",), "manager": ("expanders", "cloudproviders")}
PARTS = {"agent": {"agent", "shared"}, "manager": {"deploy", "manager", "shared"}}
UNIMPORTED = {"agent": {"httptools"}, "manager": {"httptools", "typer"}}
"""uvicorn looks for its parser by itself, and typer runs `headroom cleanup`."""
LEFT_OUT = {"kubernetes"}
SHARED_NAMES = {"google": "protobuf"}
"""The distribution that is meant where several share the package."""


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*OURS, include_external_packages=True, exclude_type_checking_imports=True)


def reached(graph: grimp.ImportGraph, roots: set[str]) -> set[str]:
    """All that is imported from these modules, sooner or later, packages above modules among it."""
    found: set[str] = set()
    unread = set(roots)
    while unread:
        module = unread.pop()
        found.add(module)
        imported = set() if graph.is_module_squashed(module) else graph.find_modules_directly_imported_by(module)
        above = module.rpartition(".")[0]
        unread |= (imported | ({above} if above else set())) - found
    return found


@pytest.mark.parametrize("component", locked.COMPONENTS)
def test_what_the_processes_import_is_in_the_image_and_no_more(graph: grimp.ImportGraph, component: str) -> None:
    plugins = [value for kind in PLUGINS[component] for value in ENTRY_POINTS[f"headroom.{kind}"].values()]
    found = reached(graph, {*STARTED[component], *(value.partition(":")[0] for value in plugins)})
    tops = {module.partition(".")[0] for module in found}
    assert tops & set(OURS) == PARTS[component]

    providers = importlib.metadata.packages_distributions()
    others = tops - set(OURS) - sys.stdlib_module_names - LEFT_OUT
    imported = {canonicalize_name(SHARED_NAMES.get(top) or providers[top][0]) for top in others}
    group = set(locked.requirements(component))
    installed = {pin.name for pin in locked.closure(group, locked.pins(locked.LOCK.read_text()))}
    assert imported <= installed
    assert group - imported == UNIMPORTED[component]
