"""`headroom cleanup`: removes from the cluster what the manager left there and nothing else removes.

It removes the resources of the offered tiers from every Node's status (a kubelet keeps unknown resources), the
manager's annotations and conditions of Nodes, the NodeMetrics that the manager
created, its Lease, and the autoscaler's records; on request, also the Nodes of a simulated cloud. Running pods need
none of it, except those that hold Mid or Batch: their Nodes keep the held amounts, or the pods are evicted first.
Removing a missing object is no error, so the command can be repeated.
"""

import contextlib
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from deploy import cleanup_pods, cleanup_state
from deploy.cleanup_pods import PodCleanup
from manager.autoscaler.cloudprovider.simulated import fake_nodes, state_store
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from manager.nodeside.eviction import condition
from manager.nodeside.noderesource import holdings, writing
from shared import names
from shared.api.core import Node, Quantities
from shared.api.nodemetric import NodeMetric
from shared.errors import HeadroomError
from shared.kube.client import Client, Listing, Patch
from shared.kube.errors import ApiError, Conflict, NotFound
from shared.kube.resources import CONFIGMAPS, LEASES, NODEMETRICS, NODES
from shared.kube.retry import Retry
from shared.names import Tier
from shared.quantity import Resources

# Longer than a leader needs to see a Node without its Mid, and to write it again.
SETTLE_SECONDS = 2.0
ROUNDS = 3
RETRY = Retry(deadline_seconds=60.0)

ALL_TIERS = tuple(Tier)
NOTHING = Resources()
NOTHING_HELD: Mapping[Tier, Resources] = {}
STATUS = AutoscalerSettings().status_config_map_name

# Annotations on a Node that belong to a tier, but are in another domain.
_ANNOTATIONS = {Tier.BATCH: names.ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE}

# The creator of the Node sets these.
_MARKS = frozenset({names.LABEL_SIMULATED, fake_nodes.LABEL_CLOUD})

_OWN = re.compile(r"([a-z0-9.-]+\.)?headroom\.io/")

T = TypeVar("T")


class Unfinished(HeadroomError):
    """Not everything could be removed."""


@dataclass(frozen=True)
class NodeCleanup:
    """The cleanup of one Node: the patch of its status, and the names of what the patch removes."""

    patch: dict[str, Any]
    removed: tuple[str, ...]


@dataclass(frozen=True)
class FormerManager:
    """The former manager: the tiers that it offered, the name of its autoscaler's status, whether its cloud was the
    simulated one, what happens to its pods, and the DaemonSet, if any, that removes the agents' state from nodes.
    """

    tiers: Collection[Tier] = ALL_TIERS
    status: str = STATUS
    simulated_cloud: bool = False
    pods: PodCleanup = PodCleanup.KEEP
    state_daemonset: str = ""


@dataclass(frozen=True)
class CleanupStep:
    """One thing to remove, and how."""

    what: str
    act: Callable[[], object]


def removal(
    node: Node, tiers: Collection[Tier] = ALL_TIERS, holding: Mapping[Tier, Resources] = NOTHING_HELD
) -> NodeCleanup | None:
    """The patch that removes what the product left on the Node under these tiers; None if there is nothing.

    The amounts that its pods are `holding` stay.

    Metadata goes with the status in one patch, which the status subresource of Nodes permits. The mark of a simulated
    Node stays: the creator of the Node has set it, and it says what the Node is.
    """
    meta, status = node.metadata, node.status
    parts = {
        "metadata": {
            "labels": dict.fromkeys(_own(meta.labels)),
            "annotations": dict.fromkeys(_own(meta.annotations, tiers)),
        },
        "status": {
            "capacity": _offered(status.capacity, tiers, holding),
            "allocatable": _offered(status.allocatable, tiers, holding),
        },
    }
    patch = {
        part: {field: keys for field, keys in fields.items() if keys}
        for part, fields in parts.items()
        if any(fields.values())
    }
    removed = dict.fromkeys(
        key if amount is None else f"{key} beyond the {amount} that pods request"
        for fields in parts.values()
        for keys in fields.values()
        for key, amount in keys.items()
    )
    return NodeCleanup(patch, tuple(removed)) if patch else None


def clean(
    client: Client, *, namespace: str, dry_run: bool, say: Callable[[str], None], past: FormerManager = FormerManager()
) -> None:
    """Removes everything, and repeats that until nothing comes back; `say` receives a line for each object.

    Raises Unfinished, and API errors.
    """
    if past.pods is PodCleanup.DRAIN:
        if dry_run:
            for pod in cleanup_pods.holding(client, past.tiers):
                say(f"would evict pod {pod.key} from node {pod.node}")
        else:
            cleanup_pods.drain(client, past.tiers, say)
    steps = list(due(client, namespace, past))
    if dry_run:
        for step in steps:
            say(f"would remove {step.what}")
    elif steps:
        _remove(client, namespace, past, steps, say)
    if not steps:
        say("nothing to remove")
    if past.pods is PodCleanup.KEEP and (kept := cleanup_pods.holding(client, past.tiers)):
        nodes = len({pod.node for pod in kept})
        say(f"kept on {nodes} nodes: what {len(kept)} running pods request; run this again after they have ended")
    if past.state_daemonset:
        if dry_run:
            say(f"would wait for daemonset {namespace}/{past.state_daemonset}")
        else:
            cleanup_state.wait(client, namespace, past.state_daemonset, say)


def due(client: Client, namespace: str, past: FormerManager = FormerManager()) -> Iterator[CleanupStep]:
    """Everything that remains to be removed. Raises Unfinished if something cannot be read."""
    tiers = past.tiers
    there = cleanup_pods.by_node(cleanup_pods.holding(client, tiers)) if past.pods is PodCleanup.KEEP else {}
    for node in _readable(client.list(NODES, into=Node)):
        name = node.metadata.name
        if past.simulated_cloud and fake_nodes.belongs_to(node) is not None:
            delete = partial(client.delete, NODES, name, uid=node.metadata.uid)
            yield CleanupStep(f"node {name} of the simulated cloud", delete)
            continue
        held = {tier: each.floor for tier, each in holdings.find(node, there.get(name, ()), None).items()}
        if found := removal(node, tiers, held):
            patch = partial(client.patch, NODES, name, found.patch, subresource="status")
            yield CleanupStep(f"from node {name}: {', '.join(found.removed)}", patch)
        if said := [type_ for type_ in condition.types(tiers) if condition.find(node, type_)]:
            body = {"status": {"conditions": [{"type": type_, "$patch": "delete"} for type_ in said]}}
            patch = partial(client.patch, NODES, name, body, subresource="status", kind=Patch.STRATEGIC)
            yield CleanupStep(f"from node {name}: {', '.join(said)}", patch)
    for metric in _own_metrics(client):
        name, uid = metric.metadata.name, metric.metadata.uid
        yield CleanupStep(f"nodemetric {name}", partial(client.delete, NODEMETRICS, name, uid=uid))
    kept = (
        names.REGISTRY_CONFIG_MAP,
        names.FORMER_REGISTRY_CONFIG_MAP,
        names.DECISIONS_CONFIG_MAP,
        past.status,
        state_store.CONFIG_MAP,
    )
    for what, resource, name in (
        ("lease", LEASES, names.MANAGER_LEASE),
        *(("configmap", CONFIGMAPS, name) for name in kept),
    ):
        with contextlib.suppress(NotFound):
            client.get(resource, name, namespace)
            yield CleanupStep(f"{what} {namespace}/{name}", partial(client.delete, resource, name, namespace))


def _remove(
    client: Client, namespace: str, past: FormerManager, steps: list[CleanupStep], say: Callable[[str], None]
) -> None:
    for _ in range(ROUNDS):
        failed = [step for step in steps if not _done(step, say)]
        if failed:
            raise Unfinished(f"{len(failed)} of {len(steps)} could not be removed: {failed[0].what}, ...")
        client.clock.wait(threading.Event(), SETTLE_SECONDS)
        steps = list(due(client, namespace, past))
        if not steps:
            return
    raise Unfinished(
        f"{len(steps)} came back each time ({steps[0].what}, ...): a manager is running; uninstall or stop it first"
    )


def _done(step: CleanupStep, say: Callable[[str], None]) -> bool:
    """Whether the object is gone; if another client removed or replaced it, the next look decides."""
    try:
        step.act()
    except (NotFound, Conflict):
        return True
    except ApiError as error:
        say(f"not removed {step.what}: {error}")
        return False
    say(f"removed {step.what}")
    return True


def _own_metrics(client: Client) -> list[NodeMetric]:
    """The NodeMetrics that the manager created, not those it found; none if the kind itself is gone."""
    try:
        return _readable(
            client.list(NODEMETRICS, into=NodeMetric, label_selector=f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}")
        )
    except NotFound:
        return []


def _readable(listing: Listing[T]) -> list[T]:
    for refused in listing.refused:
        raise Unfinished(f"{refused.key} cannot be read: {refused.reason}")
    return listing.items


def _offered(
    listed: Quantities | None, tiers: Collection[Tier], holding: Mapping[Tier, Resources]
) -> dict[str, str | None]:
    """The value for the patch: None to remove the resource, else the amount that pods hold."""
    found: dict[str, str | None] = {}
    for tier in tiers:
        of_tier = holding.get(tier, NOTHING)
        for name, amount in zip(names.TIER_RESOURCES[tier], of_tier, strict=True):
            if name not in (listed or {}):
                continue
            if of_tier == NOTHING:
                found[name] = None
            elif writing.milli((listed or {})[name]) != 1000 * amount:
                found[name] = str(amount)
    return found


def _own(keys: Mapping[str, str] | None, tiers: Collection[Tier] = ()) -> list[str]:
    """The labels or annotations in the product's domain, or belonging to one of the tiers."""
    with_tiers = {_ANNOTATIONS[tier] for tier in tiers if tier in _ANNOTATIONS}
    return [key for key in keys or {} if key in with_tiers or (_OWN.match(key) and key not in _MARKS)]
