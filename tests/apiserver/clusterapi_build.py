"""The core controllers of Cluster API."""

from collections.abc import Mapping
from pathlib import Path

from tests.apiserver import module_build
from tests.apiserver.binaries import MODULES, Tool
from tests.apiserver.module_build import BuiltController

MODULE = "sigs.k8s.io/cluster-api"
CORE = Tool("cluster-api", MODULE, MODULES / "clusterapi")


def built_cluster_api(environment: Mapping[str, str]) -> BuiltController:
    """Raises Unavailable where they cannot be built."""
    return module_build.built_controller(CORE, MODULE, [Path("config", "crd", "bases")], environment)
