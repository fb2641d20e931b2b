"""The product's identities on a real API server: the chart's service accounts, with the chart's rights."""

import os
import subprocess
from pathlib import Path

from deploy.local.control_plane import binary
from shared import names
from shared.errors import HeadroomError
from shared.kube.client import Client

CHART = Path(__file__).parent.parent / "helm" / "headroom"
RELEASE = "headroom"
MANAGER, AGENT = f"{RELEASE}-manager", f"{RELEASE}-agent"
LIFE_SECONDS = 365 * 86_400  # longer than any local cluster

# The processes run beside the cluster, so the chart installs the workloads without pods; `up` writes the policy, and
# the local cluster registers a webhook on this machine.
_VALUES = (
    "image.repository=headroom",  # unused, as no pod is created
    "manager.replicas=0",
    f"agent.nodeSelector.{names.LABEL_SIMULATED.replace('.', chr(92) + '.')}=no",
    "manager.webhook.register=false",
    "colocationConfig.create=false",
    "priorityClasses.tiers=false",  # created beside Koordinator's bands, as on the embedded one
    "rbac.eviction=true",
    "manager.autoscaler.cloudProvider=simulated",
    "manager.settings.capacityQuotasEnabled=true",
)


class ChartNotInstalled(HeadroomError):
    """Helm reported an error."""


def install_chart(kubeconfig: Path) -> None:
    """Installs or upgrades the chart: custom resources, service accounts, their rights, admission policy."""
    command = [str(binary("helm")), "upgrade", "--install", RELEASE, str(CHART)]
    command += ["--namespace", names.INSTALL_NAMESPACE, "--create-namespace"]
    for value in _VALUES:
        command += ["--set-string" if value.startswith("agent") else "--set", value]
    environment = os.environ | {"KUBECONFIG": str(kubeconfig)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ChartNotInstalled(f"helm could not install the chart: {done.stderr.strip()}")


def token(client: Client, service_account: str, node_name: str | None = None) -> str:
    """A token for one of the chart's service accounts; an agent's token is bound to its Node, as in the agent's pod."""
    bound_to = {"kind": "Node", "apiVersion": "v1", "name": node_name} if node_name else None
    issued = client.request_token(
        names.INSTALL_NAMESPACE, service_account, bound_to=bound_to, expiration_seconds=LIFE_SECONDS
    )
    return issued.token
