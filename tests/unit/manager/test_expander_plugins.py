"""An expander of a third party is found by its entry point; what it does wrong leaves all options in."""

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from manager.autoscaler.decision_settings import load
from manager.autoscaler.expander.chain import ExpanderPlugins
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from shared.errors import InvalidInput
from tests.unit.manager.rounds import decided, group, pending

MODULE = """
    class First:
        def __init__(self, settings):
            pass

        def best_options(self, options, context):
            return options[:1]


    class Raises(First):
        def best_options(self, options, context):
            raise KeyError("no zone")


    class Exits(First):
        def best_options(self, options, context):
            raise SystemExit(3)


    class Invents(First):
        def best_options(self, options, context):
            import dataclasses
            return [dataclasses.replace(options[0], node_count=99)]


    class Shapeless(First):
        def best_options(self, options, context):
            return 7


    class Unmakable:
        def __init__(self, settings):
            raise RuntimeError("no licence")


    def nothing(settings):
        return object()
"""
ENTRY_POINTS = """
    [headroom.expanders]
    first = {module}:First
    raises = {module}:Raises
    exits = {module}:Exits
    invents = {module}:Invents
    shapeless = {module}:Shapeless
    unmakable = {module}:Unmakable
    nothing = {module}:nothing
    missing = {module}:NotThere
    no-module = {module}_elsewhere:First
    price = {module}:First
"""
NAME = "third_party_expanders"
STATES = [group("a", 2), group("b", 4), group("c", 8)]
CLASSES = [pending(1, 3)]


@pytest.fixture(autouse=True)
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution as a package installer leaves it."""
    info = tmp_path / "third_party-1.0.dist-info"
    info.mkdir()
    (tmp_path / f"{NAME}.py").write_text(dedent(MODULE))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(dedent(ENTRY_POINTS).format(module=NAME))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop(NAME, None)


def test_an_installed_expander_chooses() -> None:
    decision = decided(STATES, CLASSES, expanders=("first",), plugins=ExpanderPlugins())
    assert [(step.expander, step.groups, step.problem) for step in decision.steps] == [("first", ("a",), "")]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("raises", "KeyError: 'no zone'"),
        ("exits", "SystemExit: 3"),
        ("invents", "it returned an option that was not in the request"),
        ("shapeless", "TypeError"),
    ],
)
def test_an_expander_that_fails_leaves_the_choice_to_the_next(name: str, problem: str) -> None:
    failed, least_nodes = decided(STATES, CLASSES, expanders=(name, "least-nodes")).steps
    assert (failed.expander, failed.groups) == (name, ("a", "b", "c"))
    assert problem in failed.problem
    assert (least_nodes.groups, least_nodes.problem) == (("b", "c"), "")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("unmakable", "RuntimeError: no licence"),
        ("nothing", "no best_options()"),
        ("missing", "NotThere"),
        ("no-module", f"No module named '{NAME}_elsewhere'"),
    ],
)
def test_an_expander_that_cannot_be_made_is_refused_with_its_entry_point_and_the_reason(name: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load(AutoscalerSettings(cloud_provider="simulated", expander=f"{name},price"))
    assert f"entry point {name} = {NAME}" in str(caught.value)
    assert "in headroom.expanders of third-party 1.0" in str(caught.value)
    assert reason in str(caught.value)


def test_no_package_takes_the_name_of_a_built_in_expander() -> None:
    (step,) = decided([group("a", 64), group("b", 4)], CLASSES, expanders=("price",)).steps
    assert step.groups == ("b",)
