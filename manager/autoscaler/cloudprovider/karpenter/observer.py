"""What the NodeClaims of ours say, from one observation to the next, and what the registry keeps of it."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from manager.autoscaler.cloudprovider.cloud_file import ReloadedFile
from manager.autoscaler.cloudprovider.contract import CloudNotice
from manager.autoscaler.cloudprovider.errors import Later, Unavailable
from manager.autoscaler.cloudprovider.karpenter import NAME, claims, ended_claims, waiting
from manager.autoscaler.cloudprovider.karpenter.catalogue import Offering
from manager.autoscaler.cloudprovider.karpenter.claims import NodeClaim
from manager.autoscaler.cloudprovider.karpenter.config import SOLD_OUT_SECONDS, KarpenterCloud, KarpenterGroup
from manager.autoscaler.cloudprovider.karpenter.ended_claims import FailedClaim
from manager.autoscaler.cloudprovider.karpenter.groups import BuyingState
from manager.autoscaler.cloudprovider.karpenter.offering_reports import OfferingReader
from manager.autoscaler.cloudprovider.karpenter.reading import KarpenterReader
from manager.autoscaler.cloudprovider.karpenter.registry import KarpenterRegistry, KarpenterRegistryStore, SoldOut
from manager.autoscaler.cloudprovider.karpenter.type_reports import TypeReports
from shared.clock import Clock
from shared.kube.client import Client
from shared.kube.errors import AlreadyExists, Conflict

logger = logging.getLogger(__name__)

UNSEEN_SECONDS = 120.0  # after which another leader may have acted: its deletions and purchases are not told from ours


@dataclass(frozen=True)
class SeenClaims:
    """One observation of all claims, with the registry. Replaced as a whole, so that two threads may read it.

    `waiting` are asked for and not created yet, and `ready` those of them that may be created now.
    `stuck` claims have had no machine for too long. `notices` are new.
    """

    state: BuyingState
    registry: KarpenterRegistry = field(default_factory=KarpenterRegistry)
    claims: Mapping[str, NodeClaim] = field(default_factory=dict)
    by_group: Mapping[str, Sequence[NodeClaim]] = field(default_factory=dict)
    by_provider_id: Mapping[str, NodeClaim] = field(default_factory=dict)
    failed: Mapping[str, FailedClaim] = field(default_factory=dict)
    waiting: Mapping[str, NodeClaim] = field(default_factory=dict)
    ready: Sequence[NodeClaim] = ()
    stuck: frozenset[str] = frozenset()
    notices: Sequence[CloudNotice] = ()

    @property
    def groups(self) -> dict[str, KarpenterGroup]:
        """The file's, and created ones."""
        return {**self.registry.groups, **{each.name: each for each in self.state.cloud.groups}}

    def claims_of(self, group: str) -> Sequence[NodeClaim]:
        return self.by_group.get(group, ())


class ClaimObserver:
    """Observes claims and keeps the registry. One thread observes; others may read `seen`."""

    def __init__(
        self,
        file: ReloadedFile[KarpenterCloud],
        client: Client,
        store: KarpenterRegistryStore,
        clock: Clock,
        *,
        minds_drift: bool,
    ) -> None:
        self.seen = SeenClaims(BuyingState(file.cloud))
        self._file = file
        self._reader = KarpenterReader(client, minds_drift=minds_drift)
        self._store = store
        self._clock = clock
        self._known: Mapping[str, NodeClaim] = {}
        self._looked_at = clock.monotonic()
        self._since: dict[str, float] = {}  # monotonic: when each claim was first seen
        self._deleted: set[str] = set()  # claims that we have deleted, while they are there
        self._reports = TypeReports(self._reader)
        self._offerings = OfferingReader(clock)
        self._told: dict[str, str] = {}
        self._told_waiting: set[str] = set()

    def refresh(self) -> None:
        """Observes anew. Raises ProviderError, and HeadroomError of the API server."""
        file = self._file.reread()
        offered = self._offerings.reports(file.metrics_url)
        cloud = offered.applied(file)
        now = self._clock.now()
        self._forget_unseen()
        defaults, problem = self._reader.defaults(cloud)
        listed = self._reader.claims()
        self._since = {name: self._since.get(name, self._clock.monotonic()) for name in listed}
        stuck = [
            each
            for name, each in listed.items()
            if claims.is_stuck(each, self._waited_seconds(name), cloud.launch_seconds)
        ]
        for each in stuck:
            message = claims.launch_error(each).message
            problem = problem or f"NodeClaim {each.metadata.name} gets no machine, and blocks Karpenter: {message}"
        uncreated = [each for name, each in self.seen.waiting.items() if name not in {*self._known, *listed}]
        errors = waiting.errors_of(self._follow(listed, now), stuck)
        left_alone = {
            str(each.offering): SoldOut(now + SOLD_OUT_SECONDS, claims.launch_error(each).message) for each in stuck
        }
        registry = self._written(self._store.read(), listed, left_alone, now, cloud)
        withheld = cloud.catalogue.mismatches(registry.reported, registry.labels)
        state = BuyingState(cloud, defaults, problem, withheld, offered.sold_out(cloud, now) | registry.sold_out)
        by_group: dict[str, list[NodeClaim]] = {}
        for each in listed.values():
            by_group.setdefault(each.group, []).append(each)
        by_provider_id = {each.status.provider_id: each for each in listed.values() if each.status.provider_id}
        seen = SeenClaims(state, registry, listed, by_group, by_provider_id)
        uncreated = [each for each in uncreated if each.group in seen.groups]
        # What forbids to buy anything passes; what is waited for does not fail for it.
        buying = replace(state, problem="")
        settled = waiting.settle(
            uncreated,
            registry.launched,
            list(listed.values()),
            errors,
            lambda each: buying.refusal(seen.groups[each.group], now),
            now,
        )
        failed = {name: each for name, each in self.seen.failed.items() if each.claim.group in seen.groups}
        self.seen = replace(
            seen,
            failed=failed | {each.claim.metadata.name: each for each in settled.failed},
            waiting={each.metadata.name: each for each in (*settled.staying, *settled.ready)},
            ready=() if problem else settled.ready,
            stuck=frozenset(each.metadata.name for each in stuck),
            notices=[*self.seen.notices, *self._held_back(settled.staying)],
        )
        unread, unpriced = "changes of the node class cannot be detected", "Karpenter's metrics cannot be read"
        told = {"no node can be launched": problem, unread: defaults.hash_problem, unpriced: self._offerings.problem}
        self._report(told | withheld)

    def add_created(self, claim: NodeClaim) -> None:
        """Adds a claim that was created since the observation."""
        self._known = {**self._known, claim.metadata.name: claim}
        self._since[claim.metadata.name] = self._clock.monotonic()

    def count_at_once(self, offering: Offering, many: int) -> int:
        """How many of `many` claims may be created now; see `waiting`."""
        return waiting.count_at_once(offering, many, self.seen.registry.launched, self._known.values())

    def add_waiting(self, added: Sequence[NodeClaim]) -> None:
        """Adds claims that are to be created once their offering has launched."""
        self.seen = replace(self.seen, waiting={**self.seen.waiting, **{each.metadata.name: each for each in added}})

    def mark_deleted(self, name: str) -> None:
        """Marks a claim whose deletion is being asked for."""
        self._deleted.add(name)

    def unmark_deleted(self, name: str) -> None:
        """Takes the mark back: the deletion was refused."""
        self._deleted.discard(name)

    def give_up(self, name: str) -> None:
        """A claim that has failed, or waits, is no instance of its group any more."""
        failed = {key: each for key, each in self.seen.failed.items() if key != name}
        left = {key: each for key, each in self.seen.waiting.items() if key != name}
        self.seen = replace(self.seen, failed=failed, waiting=left)

    def write(self, registry: KarpenterRegistry) -> None:
        """Raises Later if others have changed the registry meanwhile."""
        try:
            self._store.write(registry)
        except (Conflict, AlreadyExists) as error:
            raise Later(NAME, "", f"the registry has changed meanwhile: {error}") from error
        self.seen = replace(self.seen, registry=registry)

    def _waited_seconds(self, name: str) -> float:
        """By our own clock: the API server's may differ by more than a machine takes."""
        now = self._clock.monotonic()
        return now - self._since.get(name, now)

    def _forget_unseen(self) -> None:
        """After a long time without a look it begins as a new leader does."""
        now = self._clock.monotonic()
        if now - self._looked_at > UNSEEN_SECONDS:
            self._known, self._deleted = {}, set()
            self.seen = replace(self.seen, failed={}, waiting={})
        self._looked_at = now

    def _follow(self, listed: Mapping[str, NodeClaim], now: float) -> list[FailedClaim]:
        """Remembers claims that have failed since the last look, and tells of those that others delete."""
        gone = [each for name, each in self._known.items() if name not in listed and name not in self._deleted]
        events = self._reader.warnings() if any(not each.holds(claims.REGISTERED) for each in gone) else {}
        failed = ended_claims.failures(self._known, listed, self._deleted, events, now)
        for each in failed:
            logger.warning("a NodeClaim has failed: %s", each.error.message, extra={"group": each.claim.group})
        deletions = [each.notice for each in ended_claims.deletions_by_others(self._known, listed, self._deleted)]
        for notice in deletions:
            logger.warning("%s", notice.message, extra={"group": notice.group})
        self.seen = replace(
            self.seen,
            failed={**self.seen.failed, **{each.claim.metadata.name: each for each in failed}},
            notices=deletions,
        )
        self._known = listed
        self._deleted &= listed.keys()
        return failed

    def _held_back(self, staying: Sequence[NodeClaim]) -> list[CloudNotice]:
        """Tells of each claim that waits once."""
        new = [each for each in staying if each.metadata.name not in self._told_waiting]
        self._told_waiting = {each.metadata.name for each in staying}
        return waiting.notices(new)

    def _written(
        self,
        before: KarpenterRegistry,
        listed: Mapping[str, NodeClaim],
        left_alone: Mapping[str, SoldOut],
        now: float,
        cloud: KarpenterCloud,
    ) -> KarpenterRegistry:
        """The registry with what was learnt since; offerings that launch nothing are `left_alone`."""
        created = {found.name: found for each in listed.values() if (found := each.created_group) is not None}
        sold_out = {name: each for name, each in before.sold_out.items() if each.until >= now}
        sold_out |= {name: each for name, each in left_alone.items() if name not in sold_out}
        sold_out |= {
            str(each.claim.offering): SoldOut(each.at + SOLD_OUT_SECONDS, each.error.message)
            for each in self.seen.failed.values()
            if each.is_stock_out and each.at + SOLD_OUT_SECONDS >= now
        }
        groups = {**created, **before.groups, **{each.name: each for each in cloud.groups}}
        registry = KarpenterRegistry(
            created | before.groups,
            before.reported | self._reports.amounts(before.reported, listed.values()),
            sold_out,
            waiting.launched_offerings(before.launched, listed.values(), cloud.catalogue),
            self._reports.labels(before.labels, listed.values(), cloud.catalogue, groups),
        )
        if registry != before:
            try:
                self._store.write(registry)
            except (Conflict, AlreadyExists) as error:
                raise Unavailable(NAME, "", f"the registry has changed meanwhile: {error}") from error
        return registry

    def _report(self, problems: Mapping[str, str]) -> None:
        """Logs each problem once."""
        found = {what: problem for what, problem in problems.items() if problem}
        for what in (each for each in found if self._told.get(each) != found[each]):
            logger.warning("%s: %s", what, found[what], extra={"provider": NAME})
        self._told = found
