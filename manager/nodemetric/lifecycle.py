"""A NodeMetric is there exactly as long as its Node is: the step towards that, and how it is taken.

NodeMetrics have no owner, so that those of another manager can be adopted; all races end in the wanted state.
"""

import enum
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from manager.nodemetric import spec
from shared import names
from shared.api import nodemetric
from shared.api.nodemetric import NodeMetricSpec
from shared.kube.client import Client
from shared.kube.errors import AlreadyExists, Conflict, NotFound
from shared.kube.resources import NODEMETRICS


@dataclass(frozen=True)
class Create:
    name: str
    spec: NodeMetricSpec


@dataclass(frozen=True)
class Update:
    """What is to become of the spec, if the NodeMetric is still at that resourceVersion."""

    name: str
    spec: dict[str, object]
    version: str

    @property
    def patch(self) -> dict[str, object]:
        """A merge patch."""
        return {"metadata": {"resourceVersion": self.version}, "spec": self.spec}

    @property
    def asked(self) -> str:
        """What is asked for; one text for all NodeMetrics of which the same is asked."""
        return sys.intern(msgspec.json.encode(self.spec, order="deterministic").decode())


@dataclass(frozen=True)
class Delete:
    """Only that very object: a NodeMetric created anew meanwhile belongs to a Node created anew.

    Of one that cannot be read no `uid` is known. Should it take one created anew, that is created once more.
    """

    name: str
    uid: str | None = None


Step: TypeAlias = Create | Update | Delete


class LifecycleOutcome(enum.Enum):
    """What became of a step."""

    DONE = enum.auto()
    UNKEPT = enum.auto()  # taken by a server whose schema lacks the fields of the update, and which keeps nothing of it
    OVERTAKEN = enum.auto()  # somebody else changed the object first, and the watch brings the next step


def plan(
    name: str,
    old: NodeMetricSpec | None,
    wanted: NodeMetricSpec,
    *,
    version: str = "",
    unread: Mapping[str, object] | None = None,
) -> Create | Update | None:
    """What to do about the NodeMetric of a Node that exists, if anything; `old` is the spec of one that is there, and
    `version` which of its resourceVersions said so: only that one is updated. Where what stands there cannot be
    read, `unread` is that, and goes.
    """
    if old is None:
        return Create(name, wanted)
    if old == wanted:
        return None
    patch = spec.merge_patch(old if unread is None else unread, wanted)
    return Update(name, patch, version) if patch else None


def perform(client: Client, step: Step) -> LifecycleOutcome:
    """Takes the step; somebody else having taken it is as good. Raises ApiError, Unreachable."""
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
