"""Karpenter with its kwok provider."""

from collections.abc import Mapping
from pathlib import Path

from tests.apiserver import module_build
from tests.apiserver.binaries import MODULES, Tool
from tests.apiserver.module_build import BuiltController

MODULE = "sigs.k8s.io/karpenter"
KWOK = Tool("karpenter", f"{MODULE}/kwok", MODULES / "karpenter")
_DEFINITIONS = (Path("pkg", "apis", "crds"), Path("kwok", "apis", "crds"))


def built_karpenter(environment: Mapping[str, str]) -> BuiltController:
    """Raises Unavailable where it cannot be built."""
    return module_build.built_controller(KWOK, MODULE, _DEFINITIONS, environment)
