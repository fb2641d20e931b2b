"""A NodeMetric exists exactly as long as its Node: the step towards that, and its execution.

NodeMetrics have no owner, so that those of another manager can be adopted; all races end in the desired state.
"""

import enum
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from manager.nodeside.nodemetric import spec
from shared import names
from shared.api import nodemetric
from shared.api.nodemetric_spec import NodeMetricSpec
from shared.kube.client import Client
from shared.kube.errors import AlreadyExists, Conflict, NotFound
from shared.kube.resources import NODEMETRICS


@dataclass(frozen=True)
class Create:
    name: str
    spec: NodeMetricSpec


@dataclass(frozen=True)
class Update:
    """The new spec, if the NodeMetric still has that resourceVersion."""

    name: str
    spec: dict[str, object]
    version: str

    @property
    def patch(self) -> dict[str, object]:
        return {"metadata": {"resourceVersion": self.version}, "spec": self.spec}

    @property
    def asked(self) -> str:
        """The requested spec as text; one shared string for all NodeMetrics with the same request."""
        return sys.intern(msgspec.json.encode(self.spec, order="deterministic").decode())


@dataclass(frozen=True)
class Delete:
    """Deletes only that very object: a recreated NodeMetric belongs to a recreated Node.

    An unreadable NodeMetric has no known `uid`. If a recreated one is deleted instead, it is created once more.
    """

    name: str
    uid: str | None = None


Step: TypeAlias = Create | Update | Delete


class LifecycleOutcome(enum.Enum):
    """The result of a step."""

    DONE = enum.auto()
    UNKEPT = enum.auto()  # accepted by a server whose schema lacks the updated fields, and which drops them
    OVERTAKEN = enum.auto()  # another writer changed the object first, and the watch brings the next step


def plan(
    name: str,
    old: NodeMetricSpec | None,
    wanted: NodeMetricSpec,
    *,
    version: str = "",
    unread: Mapping[str, object] | None = None,
) -> Create | Update | None:
    """The step for the NodeMetric of an existing Node, if any; `old` is the spec of a present one, and `version` its
    resourceVersion: only that version is updated. `unread` is an unreadable spec, which the update replaces.
    """
    if old is None:
        return Create(name, wanted)
    if old == wanted:
        return None
    patch = spec.merge_patch(old if unread is None else unread, wanted)
    return Update(name, patch, version) if patch else None


def perform(client: Client, step: Step) -> LifecycleOutcome:
    """Executes the step; it is fine if another writer already has. Raises ApiError, Unreachable."""
    try:
        match step:
            case Create():
                client.create(NODEMETRICS, manifest(step))
            case Update():
                updated = client.patch(NODEMETRICS, step.name, step.patch)
                return LifecycleOutcome.UNKEPT if updated.resource_version == step.version else LifecycleOutcome.DONE
            case Delete():
                client.delete(NODEMETRICS, step.name, uid=step.uid)
    except (AlreadyExists, NotFound, Conflict):
        return LifecycleOutcome.OVERTAKEN
    return LifecycleOutcome.DONE


def manifest(step: Create) -> dict[str, object]:
    """The object to create."""
    return {
        "apiVersion": nodemetric.API_VERSION,
        "kind": nodemetric.KIND,
        "metadata": {"name": step.name, "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY}},
        "spec": step.spec,
    }
