"""The autoscaler's actions, in its own words, from the Events about its status, and errors in its cloud file."""

from pathlib import Path

from manager.autoscaler.cloudprovider.simulated import config
from shared import names
from shared.errors import HeadroomError, InvalidInput
from shared.kube.client import Client
from shared.kube.resources import EVENTS

STATUS_CONFIG_MAP = "cluster-autoscaler-status"
REQUEST_SECONDS = 2.0
_INTENT = "Scale-up: setting group "  # skipped, as a later event reports the result


class Notices:
    """Reads the Events, reports each once, and skips those from before its first read."""

    def __init__(self, client: Client, cloud: Path) -> None:
        self._client = client.single_attempt(REQUEST_SECONDS)
        self._told: set[tuple[str, int]] | None = None
        self._file = WatchedCloudFile(cloud)

    def new(self) -> list[str]:
        """The messages since the last call, oldest first."""
        return [*self._file.new(), *self._done()]

    def _done(self) -> list[str]:
        """Returns nothing while the server does not answer."""
        selector = f"involvedObject.name={STATUS_CONFIG_MAP}"
        try:
            found = self._client.list(EVENTS, names.INSTALL_NAMESPACE, field_selector=selector).items
        except HeadroomError:
            return []
        done = [event for event in found if not event["message"].startswith(_INTENT)]
        said = {(event["metadata"]["uid"], event.get("count") or 1): event for event in done}
        fresh = [] if self._told is None else [event for key, event in said.items() if key not in self._told]
        self._told = set(said)
        return [
            event["message"] for event in sorted(fresh, key=lambda event: int(event["metadata"]["resourceVersion"]))
        ]


class WatchedCloudFile:
    """The cloud file as last read; an invalid one leaves the cloud unchanged, so its error must be reported."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text: bytes | None = b""
        self._problem = ""

    def new(self) -> list[str]:
        try:
            text = self._path.read_bytes()
        except OSError:
            text = None
        if text == self._text:
            return []
        self._text, before = text, self._problem
        try:
            config.load(self._path)
            self._problem = ""
        except InvalidInput as error:
            self._problem = str(error)
        if self._problem:
            return [f"The cloud stays as it was: {' '.join(self._problem.split())}"]
        return ["The cloud is what its file says again"] if before else []
