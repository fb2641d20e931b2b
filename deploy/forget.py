"""`headroom forget`: asks agents to forget what they predict from, by annotations of their Nodes."""

from collections.abc import Callable, Sequence
from typing import Self

import msgspec

from deploy.access import ClusterContext
from shared import durations, names
from shared.api import forgetting
from shared.api.core import Node
from shared.errors import InvalidInput
from shared.kube.client import Client
from shared.kube.errors import Conflict, NotFound
from shared.kube.resources import NODES

CONFLICTS = 5  # for other writers of the same Node


class Asking:
    """Annotates Nodes, or only says so. `now` is in Unix seconds."""

    def __init__(self, access: ClusterContext, *, now: float, dry_run: bool, say: Callable[[str], None]) -> None:
        self._client = Client(access.connection(), "headroom-forget")
        self._until = durations.timestamp(now)
        self._dry_run = dry_run
        self._say = say

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def nodes(self, wanted: Sequence[str]) -> None:
        """Lets the agents of these Nodes forget everything. Raises InvalidInput and API errors."""
        for name in wanted:
            self._annotate(name, "everything", lambda _: {names.ANNOTATION_FORGET: self._until})

    def workload(self, text: str, wanted: Sequence[str]) -> None:
        """Lets the agents of these Nodes, or of all, forget a workload. Raises as `nodes` does."""
        workload = forgetting.workload(text)
        chosen = wanted or [node.metadata.name for node in self._client.list(NODES, into=Node).items]
        for name in chosen:
            self._annotate(name, workload, lambda node: self._added(node, workload))

    def _added(self, node: Node, workload: str) -> dict[str, str]:
        """Adds the workload to those requested before, while there is room; an invalid list is replaced."""
        text = node.metadata.annotation(names.ANNOTATION_FORGET_WORKLOADS)
        try:
            before = {} if text is None else forgetting.workloads(text)
        except InvalidInput as problem:
            self._say(f"Node {node.metadata.name}: replaced: {problem}")
            before = {}
        before.pop(workload, None)
        newest = sorted(before.items(), key=lambda item: item[1], reverse=True)[: forgetting.MOST_WORKLOADS - 1]
        times = {of: durations.timestamp(until) for of, until in newest} | {workload: self._until}
        return {names.ANNOTATION_FORGET_WORKLOADS: msgspec.json.encode(times).decode()}

    def _annotate(self, name: str, what: str, annotations: Callable[[Node], dict[str, str]]) -> None:
        for attempt in range(CONFLICTS):
            try:
                node = self._client.get(NODES, name, into=Node)
                body = {"resourceVersion": node.metadata.resource_version, "annotations": annotations(node)}
                if not self._dry_run:
                    self._client.patch(NODES, name, {"metadata": body})
                break
            except NotFound as error:
                problem = "there is no such node"
                raise InvalidInput(source="headroom forget", field="Node", value=name, problem=problem) from error
            except Conflict:
                if attempt == CONFLICTS - 1:
                    raise
        asked = "would be asked" if self._dry_run else "is asked"
        self._say(f"Node {name}: {asked} to forget {what} until {self._until}")
