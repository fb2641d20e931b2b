"""Which nodes reach the free volumes that claims of pending pods may be bound to."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from manager.autoscaler.snapshot.cluster import ClusterSnapshot, Flags, Integers, NodeInfo
from manager.autoscaler.snapshot.pod_info import PodInfo
from manager.autoscaler.snapshot.volumes import FreeVolume, FreeVolumes, Terms, UnboundClaim
from shared.api import placement


class ChosenClaim(NamedTuple):
    """A claim that gets one of `free`, or a new volume on the nodes where its class provisions one."""

    key: str
    free: FreeVolumes
    claim: UnboundClaim


class NewNodeVolumes(NamedTuple):
    """What new nodes reach: the names of free volumes, and the keys of claims that get new volumes there."""

    reached: frozenset[str]
    provisioned: frozenset[str]


@dataclass(frozen=True, eq=False)
class VolumeChoices:
    """`of_class` has the claims of each class whose volumes other pods may take, those of the smallest size first.

    `placed` are such claims of pods that were placed since the cluster was read, with the rows of their nodes.
    """

    of_class: Mapping[int, tuple[ChosenClaim, ...]]
    nodes: Sequence[NodeInfo]
    placed: Sequence[tuple[tuple[ChosenClaim, ...], Integers]] = ()
    _rows: dict[Terms, Integers] = field(default_factory=dict)
    _labelled: dict[str, Mapping[str | None, list[int]]] = field(default_factory=dict)

    def rows(self, terms: Terms | None) -> Integers:
        """The nodes of the snapshot that match one of the terms."""
        if terms is None:
            return np.arange(len(self.nodes))
        if terms not in self._rows:
            self._rows[terms] = np.array(
                [row for row in sorted(self._possible(terms)) if _matches(terms, self.nodes[row])], np.int64
            )
        return self._rows[terms]

    def reaches(self, node: int, volume: FreeVolume) -> bool:
        """Whether a node of the snapshot reaches the volume."""
        return _matches(volume.nodes, self.nodes[node])

    def provisions(self, node: int, claim: UnboundClaim) -> bool:
        """Whether the claim gets a new volume on a node of the snapshot."""
        return _provisions(claim, self.nodes[node])

    def provisioning(self, claim: UnboundClaim) -> Flags:
        """The nodes of the snapshot on which the claim gets a new volume."""
        found: Flags = np.zeros(len(self.nodes), np.bool_)
        if claim.provisioned != ():
            roomy = np.zeros(len(self.nodes), np.bool_)
            found[self.rows(claim.provisioned)] = True
            roomy[self.rows(claim.roomy)] = True
            found &= roomy
        return found

    def of_new_node(self, node: NodeInfo) -> NewNodeVolumes:
        """What the new nodes of a template reach."""
        claims = [each for chosen in self.of_class.values() for each in chosen]
        volumes = {id(each.free): each.free for each in claims}.values()
        return NewNodeVolumes(
            frozenset(each.name for free in volumes for each in free.volumes if _matches(each.nodes, node)),
            frozenset(each.key for each in claims if _provisions(each.claim, node)),
        )

    def _possible(self, terms: Terms) -> Iterable[int]:
        """The rows of nodes that may match: a local volume names a value of one label."""
        found: set[int] = set()
        for term in terms:
            exact = next((each for each in term.match_expressions or () if each.operator == "In"), None)
            if exact is None:
                return range(len(self.nodes))
            rows = self._by_label(exact.key)
            found.update(row for value in exact.values or () for row in rows.get(value, ()))
        return found

    def _by_label(self, key: str) -> Mapping[str | None, list[int]]:
        if key not in self._labelled:
            rows: defaultdict[str | None, list[int]] = defaultdict(list)
            for row, node in enumerate(self.nodes):
                rows[node.labels.get(key)].append(row)
            self._labelled[key] = rows
        return self._labelled[key]


def volume_choices(classes: Sequence[PodInfo], snapshot: ClusterSnapshot) -> VolumeChoices | None:
    """The choices of these classes; None if they have none."""
    found = _chosen(classes)
    if not found:
        return None
    placed = _chosen(snapshot.kinds)
    on = [(claims, snapshot.placed_node[snapshot.placed_kind == kind]) for kind, claims in placed.items()]
    return VolumeChoices(found, snapshot.nodes, on)


def _chosen(kinds: Sequence[PodInfo]) -> dict[int, tuple[ChosenClaim, ...]]:
    """By position, of the kinds that have such claims."""
    return {
        position: tuple(
            ChosenClaim(f"{kind.namespace}/{each.claim}", each.free, each)
            for each in kind.demands.unbound
            if each.free is not None
        )
        for position, kind in enumerate(kinds)
        if any(each.free is not None for each in kind.demands.unbound)
    }


def _matches(terms: Terms | None, node: NodeInfo) -> bool:
    return terms is None or placement.matches_any_term(terms, node.name, node.labels)


def _provisions(claim: UnboundClaim, node: NodeInfo) -> bool:
    return claim.provisioned != () and _matches(claim.provisioned, node) and _matches(claim.roomy, node)
