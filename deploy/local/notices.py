"""What the autoscaler has done, in its own words: the Events about its status, each told once."""

from shared import names
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.resources import EVENTS

STATUS_CONFIG_MAP = "cluster-autoscaler-status"
REQUEST_SECONDS = 2.0
_INTENT = "Scale-up: setting group "  # what came of it is told, too


class Notices:
    """One reader; what happened before its first look is not told."""

    def __init__(self, client: Client) -> None:
        self._client = client.single_attempt(REQUEST_SECONDS)
        self._told: set[tuple[str, int]] | None = None

    def new(self) -> list[str]:
        """What was said since the last look, oldest first; nothing while nobody answers."""
        selector = f"involvedObject.name={STATUS_CONFIG_MAP}"
        try:
            found = self._client.list(EVENTS, names.INSTALL_NAMESPACE, field_selector=selector).items
        except HeadroomError:
            return []
        done = [event for event in found if not event["message"].startswith(_INTENT)]
        said = {(event["metadata"]["uid"], event.get("count") or 1): event for event in done}
        fresh = [] if self._told is None else [event for key, event in said.items() if key not in self._told]
        self._told = set(said)
        return [event["message"] for event in sorted(fresh, key=lambda event: str(event.get("lastTimestamp")))]
