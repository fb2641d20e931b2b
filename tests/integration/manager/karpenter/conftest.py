from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver import karpenter_build
from tests.integration.manager.cloud_rights import grant
from tests.integration.manager.conftest import Cluster, StartManager
from tests.integration.manager.karpenter.town import KarpenterTown
from tests.support.apiserver import ApiServer
from tests.support.foreign_controller import require_built
from tests.support.karpenter import NODE_CLASS, Karpenter


@pytest.fixture(scope="module")
def karpenter(process: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Karpenter]:
    """It runs, and the manager has the rights that the chart gives for it."""
    built = require_built(karpenter_build.built_karpenter)
    grant({"node_class": NODE_CLASS}, process, "karpenter")
    karpenter = Karpenter(process, built, tmp_path_factory.mktemp("karpenter"))
    yield karpenter
    karpenter.close()
    grant({}, process, "simulated")


@pytest.fixture
def town(
    karpenter: Karpenter, cluster: Cluster, server: ApiServer, tmp_path: Path, start_manager: StartManager
) -> Iterator[KarpenterTown]:
    """It offers nothing beside auto-provisioning until a test says what."""
    karpenter.add_node_class()
    town = KarpenterTown(karpenter, cluster, server.add_namespace(), tmp_path / "karpenter.yaml", start_manager)
    town.offer()
    yield town
    town.close()
    karpenter.clear()
