"""What the processes of an installation may do by its values, on a real API server."""

import json
import os
import subprocess
from typing import Any

from deploy.local.control_plane import binary
from deploy.local.identities import CHART, RELEASE
from shared import names
from tests.support.apiserver import ApiServer


def grant(cloud_config: dict[str, Any], server: ApiServer, provider: str) -> None:
    """The manager gets the rights that the chart gives for this cloud, and no others."""
    upgrade(server, {"manager.autoscaler.cloudProvider": provider, "manager.autoscaler.cloudConfig": cloud_config})


def upgrade(server: ApiServer, values: dict[str, Any]) -> None:
    """The release gets these values, and keeps its others."""
    command = [str(binary("helm")), "upgrade", RELEASE, str(CHART), "--namespace", names.INSTALL_NAMESPACE]
    command += [
        "--reuse-values",
        *(part for path, value in values.items() for part in ("--set-json", f"{path}={json.dumps(value)}")),
    ]
    environment = os.environ | {"KUBECONFIG": str(server.kubeconfig)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
