"""What the manager of an installation may do for its cloud, on a real API server."""

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
    values = [f"manager.autoscaler.cloudProvider={json.dumps(provider)}"]
    values += [f"manager.autoscaler.cloudConfig={json.dumps(cloud_config)}"]
    command = [str(binary("helm")), "upgrade", RELEASE, str(CHART), "--namespace", names.INSTALL_NAMESPACE]
    command += ["--reuse-values", *(part for value in values for part in ("--set-json", value))]
    environment = os.environ | {"KUBECONFIG": str(server.kubeconfig)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
