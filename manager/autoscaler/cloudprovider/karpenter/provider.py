"""The provider of clouds where Karpenter runs: a machine is a NodeClaim."""

import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from manager.autoscaler.cloudprovider import node_template
from manager.autoscaler.cloudprovider.cloud_file import ReloadedFile
from manager.autoscaler.cloudprovider.contract import (
    CloudNotice,
    Created,
    Group,
    GroupSpec,
    Instance,
    InstanceState,
    NodeRef,
    Provider,
    Theoretical,
)
from manager.autoscaler.cloudprovider.errors import Later, Refused, api_error
from manager.autoscaler.cloudprovider.karpenter import NAME, claims, config, groups
from manager.autoscaler.cloudprovider.karpenter.catalogue import CataloguePrices
from manager.autoscaler.cloudprovider.karpenter.claims import SCHEME, NodeClaim
from manager.autoscaler.cloudprovider.karpenter.config import KarpenterCloud, KarpenterGroup
from manager.autoscaler.cloudprovider.karpenter.observer import ClaimObserver, SeenClaims
from manager.autoscaler.cloudprovider.karpenter.registry import CONFIG_MAP, FORMER_KEY, KEY, KarpenterRegistryStore
from manager.autoscaler.cloudprovider.karpenter.writing import ClaimWriter
from manager.autoscaler.cloudprovider.plugin import ManagedGroups, ProviderPlugin, ProviderRequest
from manager.autoscaler.cloudprovider.rights import Right, config_map_rights
from manager.autoscaler.pricing.model import PricingModel
from shared.api.core import Node
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.configmap_store import ConfigMapStore
from shared.kube.resources import NODECLAIMS

logger = logging.getLogger(__name__)


class KarpenterProvider(Provider):
    """See `Provider`. Only claims with our label, and without a NodePool, are ever listed or deleted."""

    name = NAME

    def __init__(
        self,
        file: ReloadedFile[KarpenterCloud],
        client: Client,
        store: KarpenterRegistryStore,
        clock: Clock,
        *,
        may_write: bool,
        ours: ManagedGroups | None = None,
        chance: random.Random | None = None,
    ) -> None:
        ours = ours or ManagedGroups()
        self._observer = ClaimObserver(file, client, store, clock, minds_drift=ours.minds_drift)
        self._writer = ClaimWriter(client, self._observer)
        self._clock = clock
        self._may_write = may_write
        self._minds_drift = ours.minds_drift
        self._chance = chance or random.Random()

    def refresh(self) -> None:
        """Creates claims that have waited."""
        self._observer.refresh()
        if self._may_write:
            self._create_ready()

    def groups(self) -> Sequence[Group]:
        seen = self._seen
        return [self._group(seen, each) for each in seen.groups.values()]

    def unknown_groups(self) -> Mapping[str, str]:
        """Those of NodeClaims with our label that neither the file nor the registry knows."""
        seen = self._seen
        return {
            group: claims.stray_problem([each.metadata.name for each in those], seen.stuck)
            for group, those in seen.by_group.items()
            if group not in seen.groups
        }

    def strays(self) -> Mapping[str, Sequence[str]]:
        """Claims of unknown groups that get no machine, as Karpenter waits for them."""
        seen = self._seen
        return {
            group: [each.instance_id for each in those if each.metadata.name in seen.stuck]
            for group, those in seen.by_group.items()
            if group not in seen.groups
        }

    def notices(self) -> Sequence[CloudNotice]:
        return self._seen.notices

    def instances(self, group: str) -> Sequence[Instance]:
        seen = self._seen
        there = (
            replace(claims.instance(each, seen.stuck), drift=self._drift_reason(seen, each))
            for each in seen.claims_of(group)
        )
        waiting = (
            Instance(each.instance_id, InstanceState.CREATING) for each in seen.waiting.values() if each.group == group
        )
        return [*there, *waiting, *(each.instance for each in seen.failed.values() if each.claim.group == group)]

    def group_of(self, node: NodeRef) -> str | None:
        found = self._claim_of(node.provider_id)
        return None if found is None else found.group

    def launched_at(self, node: NodeRef) -> float | None:
        found = self._claim_of(node.provider_id)
        if found is None:
            raise Refused(NAME, "", f"{node.provider_id} belongs to no NodeClaim of Headroom")
        return found.metadata.created_at

    def template(self, group: str) -> Node:
        seen = self._seen
        return seen.state.template(self._group_named(seen, group))

    def pricing(self) -> PricingModel | None:
        return CataloguePrices(lambda: self._seen.state.cloud.catalogue)

    def increase(self, group: str, delta: int) -> None:
        """One claim for each machine; part of them may have been made when it fails.

        Of an offering that has never launched one is made first, and the others wait for it.
        """
        seen, now = self._seen, self._clock.now()
        self._check_writes(group)
        found = self._group_named(seen, group)
        if problem := seen.state.refusal(found, now):
            raise Refused(NAME, group, problem)
        size = self._group(seen, found).target_size
        if size + delta > found.max:
            raise Refused(NAME, group, f"{size} + {delta} is above the maximum of {found.max}")
        bodies = [self._body(f"{group}-{self._suffix()}", found) for _ in range(delta)]
        at_once = self._observer.count_at_once(groups.offering_of(found), delta)
        for number, body in enumerate(bodies[:at_once]):
            try:
                self._writer.create(body)
            except HeadroomError as error:
                what = f"{number} of {delta} NodeClaims created"
                raise api_error(NAME, group, error, what, has_begun=number > 0) from error
        self._observer.add_waiting([msgspec.convert(body, NodeClaim) for body in bodies[at_once:]])

    def decrease_target(self, group: str, delta: int) -> None:
        raise Refused(NAME, group, "every machine of the target has a NodeClaim: delete nodes instead")

    def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        self._check_writes(group)
        wanted = {node.provider_id: self._deletable(group, node) for node in nodes}
        for number, (identity, claim) in enumerate(wanted.items()):
            if claim is None:
                self._observer.give_up(identity.removeprefix(SCHEME))
                continue
            try:
                self._writer.delete(claim)
            except HeadroomError as error:
                what = f"NodeClaim {claim.metadata.name} could not be deleted"
                raise api_error(NAME, group, error, what, has_begun=number > 0) from error

    def machine_types(self) -> Sequence[str]:
        return self._seen.state.machine_types()

    def theoretical(self, spec: GroupSpec) -> Theoretical:
        state = self._seen.state
        found = state.made_of(spec, self._clock.now())
        return Theoretical(spec, found.name, found.max, state.template(found))

    def create_group(self, spec: GroupSpec) -> Created:
        """It is in the registry; nothing is bought yet."""
        seen = self._seen
        self._check_writes("")
        made = seen.state.made_of(spec, self._clock.now(), self._suffix())
        if made.name in seen.groups:
            raise Later(NAME, made.name, "a group of this name exists already")
        self._observer.write(msgspec.structs.replace(seen.registry, groups={**seen.registry.groups, made.name: made}))
        return Created(self._group(self._seen, made))

    def delete_group(self, group: str) -> None:
        seen = self._seen
        self._check_writes(group)
        if group not in seen.registry.groups:
            raise Refused(NAME, group, "it is in the file, so it is not deleted")
        if seen.claims_of(group):
            raise Refused(NAME, group, f"not empty: {len(seen.claims_of(group))} NodeClaims")
        left = {name: each for name, each in seen.registry.groups.items() if name != group}
        self._observer.write(msgspec.structs.replace(seen.registry, groups=left))

    @property
    def _seen(self) -> SeenClaims:
        return self._observer.seen

    def _drift_reason(self, seen: SeenClaims, claim: NodeClaim) -> str:
        """While it cannot be read what new nodes would be, none has drifted."""
        found = seen.groups.get(claim.group)
        if not self._minds_drift or found is None or seen.state.problem or not claim.holds(claims.REGISTERED):
            return ""
        return groups.drift_reason(claim, found, seen.state.defaults)

    def _group(self, seen: SeenClaims, found: KarpenterGroup) -> Group:
        staying = sum(not each.is_leaving for each in seen.claims_of(found.name))
        failed = sum(each.claim.group == found.name for each in seen.failed.values())
        waiting = sum(each.group == found.name for each in seen.waiting.values())
        return Group(
            id=found.name,
            min_size=found.min,
            max_size=found.max,
            target_size=staying + failed + waiting,
            autoprovisioned=found.autoprovisioned,
            labels=found.labels,
            debug=str(groups.offering_of(found)),
        )

    def _group_named(self, seen: SeenClaims, name: str) -> KarpenterGroup:
        found = seen.groups.get(name)
        if found is None:
            raise Refused(NAME, name, "the group does not exist")
        return found

    def _claim_of(self, provider_id: str) -> NodeClaim | None:
        return self._seen.by_provider_id.get(provider_id)

    def _deletable(self, group: str, node: NodeRef) -> NodeClaim | None:
        """The claim of a node, None for one that has failed or waits. Raises Refused for all others."""
        name = node.provider_id.removeprefix(SCHEME)
        if node.provider_id.startswith(SCHEME):
            if name in self._seen.failed or name in self._seen.waiting:
                return None
            found = self._seen.claims.get(name)
        else:
            found = self._claim_of(node.provider_id)
        if found is None or found.group != group:
            raise Refused(NAME, group, f"node {node.name} ({node.provider_id}) is not in it")
        return found

    def _create_ready(self) -> None:
        """What cannot be created now is tried again after the next observation."""
        seen = self._seen
        for each in seen.ready:
            try:
                self._writer.create(self._body(each.metadata.name, seen.groups[each.group]))
            except HeadroomError as error:
                logger.warning("a NodeClaim waits on: %s", error, extra={"group": each.group})
                return

    def _body(self, name: str, group: KarpenterGroup) -> dict[str, object]:
        cloud = self._seen.state.cloud
        machine = cloud.catalogue.types[group.machine_type]
        return claims.body(name, group, machine, self._seen.state.defaults, cloud.grace_seconds)

    def _check_writes(self, group: str) -> None:
        if not self._may_write:
            raise Refused(NAME, group, "it is only read")

    def _suffix(self) -> str:
        return node_template.random_suffix(self._chance)


def make(request: ProviderRequest) -> KarpenterProvider:
    writes = request.loops is not None
    kept = ConfigMapStore(request.client, request.namespace, CONFIG_MAP, KEY, former=(CONFIG_MAP, FORMER_KEY))
    store = KarpenterRegistryStore(kept, writes=writes)
    return KarpenterProvider(
        ReloadedFile(request.file, config.load),
        request.client,
        store,
        request.clock,
        may_write=writes,
        ours=request.groups,
    )


def rights(request: ProviderRequest) -> list[Right]:
    cloud = config.load(request.file)
    found = [Right(verb, NODECLAIMS.group, "nodeclaims") for verb in ("list", "create", "delete")]
    if cloud.node_pool:
        found.append(Right("get", NODECLAIMS.group, "nodepools", name=cloud.node_pool))
    of = cloud.node_class or cloud.node_pool_class
    if of is not None:
        found.append(Right("get", of.group, of.resource_name, name=of.name))
    return [
        *found,
        Right("list", "", "events", namespace="default"),
        *config_map_rights(request.namespace, CONFIG_MAP),
    ]


PLUGIN = ProviderPlugin(make=make, rights=rights, creates_groups=True, marks_own_nodes=True)
