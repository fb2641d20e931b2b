"""`headroom cleanup`: takes off the cluster what the manager put there and nobody else would ever remove.

Those are the resources of the tiers it offered in every Node's status (a kubelet keeps what it does not know), its
annotations and conditions of Nodes, Batch in NodeResourceTopologies, the NodeMetrics that it created, its Lease, and
what its autoscaler has noted; if that is asked for, the Nodes of a simulated cloud, too. No pod that runs on a machine
needs any of it, but those that hold Mid or Batch: their Nodes keep what they hold, or they are evicted first. Removing
what is not there is no error, so that the command can be repeated at will.
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
from manager.autoscaler.cloudprovider.simulated import fake_nodes, ledger
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from manager.nodeside.eviction import condition
from manager.nodeside.noderesource import topology, writing
from manager.nodeside.noderesource.explain import NOBODY_HOLDS
from shared import names
from shared.api.core import Node, Quantities
from shared.api.nodemetric import NodeMetric
from shared.api.topology import NodeResourceTopology
from shared.errors import HeadroomError
from shared.kube.client import Client, Listing, Patch
from shared.kube.errors import ApiError, Conflict, NotFound
from shared.kube.resources import CONFIGMAPS, LEASES, NODEMETRICS, NODERESOURCETOPOLOGIES, NODES
from shared.kube.retry import Retry
from shared.names import Tier
from shared.quantity import Resources

# More than a leader needs to see a Node without its Mid, and to write it again.
SETTLE_SECONDS = 2.0
ROUNDS = 3
RETRY = Retry(deadline_seconds=60.0)

ALL_TIERS = tuple(Tier)
NOTHING = Resources()
STATUS = AutoscalerSettings().status_config_map_name

# What stands on a Node beside a tier's resources, in another one's domain.
_ANNOTATIONS = {Tier.BATCH: names.ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE}

# Whoever made the Node has marked it so.
_MARKS = frozenset({names.LABEL_SIMULATED, fake_nodes.LABEL_CLOUD})

_OWN = re.compile(r"([a-z0-9.-]+\.)?headroom\.io/")

T = TypeVar("T")


class Unfinished(HeadroomError):
    """Not everything could be removed."""


@dataclass(frozen=True)
class NodeCleanup:
    """What goes from one Node: the patch of its status, and the names of what that removes."""

    patch: dict[str, Any]
    removed: tuple[str, ...]


@dataclass(frozen=True)
class FormerManager:
    """What kind of manager there was: the tiers that it offered, what its autoscaler called its status, and whether its
    cloud was the simulated one, whose Nodes stand for nothing; what becomes of its pods; and by which DaemonSet what
    agents have learnt goes from nodes, where it does.
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
    node: Node, tiers: Collection[Tier] = ALL_TIERS, holding: Mapping[Tier, Resources] = NOBODY_HOLDS
) -> NodeCleanup | None:
    """What the product left on the Node when it offered these tiers; None when there is nothing.

    What its pods are `holding` stays, and no more.

    Metadata goes with the status in one patch, which the status subresource of Nodes allows. The mark of a simulated
    Node stays: it says what the Node is, and was set by whoever made the Node.
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
        key if amount is None else f"{key} beyond the {amount} that pods hold"
        for fields in parts.values()
        for keys in fields.values()
        for key, amount in keys.items()
    )
    return NodeCleanup(patch, tuple(removed)) if patch else None


def clean(
    client: Client, *, namespace: str, dry_run: bool, say: Callable[[str], None], past: FormerManager = FormerManager()
) -> None:
    """Removes everything, and looks again until it stays away; `say` gets a line for each object.

    Raises Unfinished, and what the API server answers.
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
        say(f"kept on {nodes} nodes: what {len(kept)} running pods hold; once they are gone, clean up again")
    if past.state_daemonset:
        if dry_run:
            say(f"would wait for daemonset {namespace}/{past.state_daemonset}")
        else:
            cleanup_state.wait(client, namespace, past.state_daemonset, say)


def due(client: Client, namespace: str, past: FormerManager = FormerManager()) -> Iterator[CleanupStep]:
    """Everything that is there to be removed. Raises Unfinished when something cannot be read."""
    tiers = past.tiers
    held = cleanup_pods.by_node(cleanup_pods.holding(client, tiers)) if past.pods is PodCleanup.KEEP else {}
    for node in _readable(client.list(NODES, into=Node)):
        name = node.metadata.name
        if past.simulated_cloud and fake_nodes.belongs_to(node) is not None:
            delete = partial(client.delete, NODES, name, uid=node.metadata.uid)
            yield CleanupStep(f"node {name} of the simulated cloud", delete)
            continue
        if found := removal(node, tiers, held.get(name, NOBODY_HOLDS)):
            patch = partial(client.patch, NODES, name, found.patch, subresource="status")
            yield CleanupStep(f"from node {name}: {', '.join(found.removed)}", patch)
        if said := [type_ for type_ in condition.types(tiers) if condition.find(node, type_)]:
            body = {"status": {"conditions": [{"type": type_, "$patch": "delete"} for type_ in said]}}
            patch = partial(client.patch, NODES, name, body, subresource="status", kind=Patch.STRATEGIC)
            yield CleanupStep(f"from node {name}: {', '.join(said)}", patch)
    if Tier.BATCH in tiers:
        yield from _zones(client)
    for metric in _own_metrics(client):
        name, uid = metric.metadata.name, metric.metadata.uid
        yield CleanupStep(f"nodemetric {name}", partial(client.delete, NODEMETRICS, name, uid=uid))
    kept = (names.BOOKS_CONFIG_MAP, names.DECISIONS_CONFIG_MAP, past.status, ledger.CONFIG_MAP)
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
        f"{len(steps)} came back each time ({steps[0].what}, ...): a manager is running, uninstall or stop it first"
    )


def _done(step: CleanupStep, say: Callable[[str], None]) -> bool:
    """Whether it is gone; another one's having removed or replaced it is for the next look."""
    try:
        step.act()
    except (NotFound, Conflict):
        return True
    except ApiError as error:
        say(f"not removed {step.what}: {error}")
        return False
    say(f"removed {step.what}")
    return True


def _zones(client: Client) -> Iterator[CleanupStep]:
    """Batch in the zones of nodes; none when there are no such zones in the cluster."""
    with contextlib.suppress(NotFound):
        for found in map(topology.read, _readable(client.list(NODERESOURCETOPOLOGIES, into=NodeResourceTopology))):
            if write := topology.plan(found, None, threshold=0, overdue=True):
                patch = partial(client.patch, NODERESOURCETOPOLOGIES, found.name, write.patch, kind=Patch.JSON)
                yield CleanupStep(
                    f"from the zones of node {found.name}: {', '.join(names.TIER_RESOURCES[Tier.BATCH])}", patch
                )


def _own_metrics(client: Client) -> list[NodeMetric]:
    """The NodeMetrics that the manager created, and not those it found; none when the kind itself is gone."""
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
    """What goes (None), or goes down to what is held."""
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
    """Those of the labels or annotations that are in the product's domain, or come with one of the tiers."""
    with_tiers = {_ANNOTATIONS[tier] for tier in tiers if tier in _ANNOTATIONS}
    return [key for key in keys or {} if key in with_tiers or (_OWN.match(key) and key not in _MARKS)]
