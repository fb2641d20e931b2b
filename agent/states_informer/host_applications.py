"""Host applications from a file, or from a NodeSLO of this node's name in clusters with that kind."""

import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from agent.states_informer.refusals import Refusals
from shared.api import nodeslo
from shared.api.nodeslo import CgroupPath, HostApplication, NodeSLO
from shared.errors import InvalidInput
from shared.kube import kinds
from shared.kube.client import Client
from shared.kube.informer import Informer
from shared.kube.object_cache import Change, ChangeKind
from shared.kube.resources import NODESLOS
from shared.kube.watch import WatchScope, WatchTimes
from shared.telemetry import Loops

KEY = "hostApplications"

Listener = Callable[[tuple[HostApplication, ...]], None]


class _FileCgroupPath(CgroupPath, frozen=True, forbid_unknown_fields=True):
    """The form in a file; in an object of the API server, an unknown field belongs to another version."""


class _FileApplication(HostApplication, frozen=True, forbid_unknown_fields=True):
    cgroup_path: _FileCgroupPath | None = None


def load(file: Path) -> tuple[HostApplication, ...]:
    """The host applications of a YAML file, as `spec.hostApplications` of a NodeSLO. Raises InvalidInput."""
    from shared import yaml_file  # imported here, because few nodes have such a file

    document = yaml_file.read(file, "--host-applications")
    if not isinstance(document, dict) or document.keys() != {KEY} or not isinstance(document[KEY], list | None):
        raise InvalidInput(
            source=str(file), field="(document)", value=document, problem=f"expected a mapping with a list {KEY} alone"
        )
    applications = []
    for place, item in enumerate(document[KEY] or ()):
        try:
            applications.append(msgspec.convert(item, _FileApplication))
        except msgspec.ValidationError as error:
            problem, _, path = str(error).partition(" - at `$")
            field = f"{KEY}[{place}]{path.rstrip('`')}"
            raise InvalidInput(source=str(file), field=field, value=item, problem=problem) from error
    nodeslo.check(applications, source=str(file), field=KEY)
    return tuple(applications)


class NodeSLOFollower:
    """Passes the applications to `on_change` at every change, and none when the NodeSLO is deleted.

    If one application of a version is invalid, the version is refused and the previous one stays.
    """

    def __init__(
        self,
        client: Client,
        node_name: str,
        refusals: Refusals,
        *,
        on_change: Listener,
    ) -> None:
        self._client = client
        self._selector = f"metadata.name={node_name}"
        self._refusals = refusals
        self._on_change = on_change
        self._told: tuple[HostApplication, ...] = ()
        self._informer = Informer(
            client,
            NODESLOS,
            NodeSLO,
            on_change=self._changed,
            scope=WatchScope(field_selector=self._selector),
            times=WatchTimes(jitter=kinds.SLOWLY),
        )

    def start(self, loops: Loops) -> None:
        loops.start("nodeslo informer", self.run)

    def run(self, stop: threading.Event) -> None:
        """Follows the NodeSLO once its kind exists."""
        if kinds.wait_for(self._client, NODESLOS, stop, field_selector=self._selector):
            self._informer.run(stop)

    def _changed(self, change: Change[NodeSLO]) -> None:
        if change.kind is ChangeKind.SYNCED:
            return
        found = () if change.new is None else self._refusals.accepted("NodeSLO", change.key, change.new, _applications)
        if found is not None and found != self._told:
            self._told = found
            self._on_change(found)


def _applications(node_slo: NodeSLO) -> tuple[HostApplication, ...]:
    listed = node_slo.spec.host_applications or ()
    nodeslo.check(listed, source="NodeSLO", field=f"spec.{KEY}")
    return listed
