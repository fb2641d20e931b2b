"""The product's identities on a real API server: the chart's service accounts, with the chart's rights."""

from pathlib import Path

from shared import names
from shared.kube.client import Client

CHART = Path(__file__).parent.parent / "helm" / "headroom"
RELEASE = "headroom"
MANAGER, AGENT = f"{RELEASE}-manager", f"{RELEASE}-agent"
LIFE_SECONDS = 365 * 86_400  # longer than any local cluster


def token(client: Client, service_account: str, node_name: str | None = None) -> str:
    """A token for one of the chart's service accounts; an agent's token is bound to its Node, as in the agent's pod."""
    bound_to = {"kind": "Node", "apiVersion": "v1", "name": node_name} if node_name else None
    issued = client.request_token(
        names.INSTALL_NAMESPACE, service_account, bound_to=bound_to, expiration_seconds=LIFE_SECONDS
    )
    return issued.token
