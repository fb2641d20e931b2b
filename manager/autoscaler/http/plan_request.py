"""The body of a plan request: pods beyond the pending ones, and settings to override."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace as with_fields

from manager.autoscaler.snapshot import pod_info
from manager.autoscaler.snapshot.referenced_objects import ReferencedObjects
from shared import yaml_file
from shared.api.core import Condition, Pod, PodStatus
from shared.api.meta import OwnerReference, prepared
from shared.errors import MAX_SHOWN_VALUE, InvalidInput

MOST_PODS = 100_000  # of one request
MOST_NAME = 253  # characters, as for the API server; every copy has its own
SOURCE = "POST /api/v1/plan"
_UNSCHEDULABLE = Condition(type="PodScheduled", status="False", reason="Unschedulable")

Count = Annotated[int, Meta(ge=0)]
Copies = Annotated[int, Meta(ge=1, le=10_000)]


class Overrides(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the manager to override for this request, with their names and meaning. null: keep the setting."""

    expander: str | None = None
    expander_preset: Annotated[str, Meta(pattern="^(seed|cluster-autoscaler|least-cost)$")] | None = None
    least_cost_mix: bool | None = None
    node_autoprovisioning: bool | None = None
    balance_similar_node_groups: bool | None = None
    salvo_scale_up: bool | None = None
    max_nodes_total: Count | None = None
    max_cpu: Count | None = None
    max_memory: Count | None = None


class Manifest(Pod, frozen=True):
    """A Pod, and nothing else that could be applied."""

    kind: Literal["Pod"] = "Pod"


@prepared
class PlanRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to plan for: the `pods`, each as in a manifest and `copies` times, in addition to the pending pods."""

    pods: tuple[Manifest, ...] = ()
    copies: Copies = 1
    overrides: Overrides = Overrides()


_REQUEST = msgspec.json.Decoder(PlanRequest)


def decode(body: bytes) -> PlanRequest:
    """The request; an empty body asks for no extra pods or settings. Raises InvalidInput."""
    try:
        return _REQUEST.decode(body) if body.strip() else PlanRequest()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        problem, _, where = str(error).partition(" - at `$")
        where = where.rstrip("`")
        raise refused(where.lstrip(".") or "(body)", _standing_at(body, where), problem) from error


def _standing_at(body: bytes, where: str) -> object:
    """The refused value, or the whole text if its position is unknown."""
    try:
        return yaml_file.at(msgspec.json.decode(body), where)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body[:MAX_SHOWN_VALUE].decode(errors="replace")


def refused(field: str, value: object, problem: str) -> InvalidInput:
    """The error that names the refused field of the request."""
    return InvalidInput(source=SOURCE, field=field, value=value, problem=problem)


def pods(wanted: PlanRequest) -> list[Pod]:
    """The requested pods as pending ones, each with its own name; the copies of one manifest share one controller.

    Raises InvalidInput.
    """
    if len(wanted.pods) * wanted.copies > MOST_PODS:
        raise refused("copies", wanted.copies, f"more than {MOST_PODS} pods in all")
    for position, pod in enumerate(wanted.pods):
        _check(pod, f"pods[{position}]")
    return [_copy(pod, position, number) for position, pod in enumerate(wanted.pods) for number in range(wanted.copies)]


def _check(pod: Pod, where: str) -> None:
    """Raises InvalidInput for an impossible pod."""
    if pod.spec.node_name:
        raise refused(f"{where}.spec.nodeName", pod.spec.node_name, "it has a node already")
    for field, value in (("name", pod.metadata.name), ("namespace", pod.metadata.namespace)):
        if len(value) > MOST_NAME:
            raise refused(f"{where}.metadata.{field}", value, f"longer than {MOST_NAME} characters")
    try:
        pod_info.read_pending(pod, ReferencedObjects())
    except InvalidInput as error:
        raise refused(f"{where}.{error.field}", error.value, error.problem) from error


def _copy(pod: Pod, position: int, number: int) -> Pod:
    meta = pod.metadata
    name = meta.name or f"pod-{position}"
    owner = OwnerReference(kind="Plan", name=name, uid=f"plan-{position}", controller=True)
    return Pod(
        metadata=with_fields(
            meta,
            name=f"{name}-{number}",
            namespace=meta.namespace or "default",
            creation_timestamp=None,
            owner_references=(owner,),
        ),
        spec=pod.spec,
        status=PodStatus(phase="Pending", conditions=(_UNSCHEDULABLE,)),
    )
