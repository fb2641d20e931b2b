"""The provider of clouds where Karpenter runs: a machine is a NodeClaim."""

import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from manager.autoscaler.cloudprovider.contract import (
    Created,
    Group,
    GroupSpec,
    Instance,
    NodeRef,
    Provider,
    Theoretical,
)
from manager.autoscaler.cloudprovider.errors import Later, ProviderError, Refused, Unavailable
from manager.autoscaler.cloudprovider.karpenter import NAME, claims, departures, groups
from manager.autoscaler.cloudprovider.karpenter.books import KarpenterBooks, KarpenterLedger, SoldOut
from manager.autoscaler.cloudprovider.karpenter.claims import SCHEME, NodeClaim
from manager.autoscaler.cloudprovider.karpenter.config import CloudFile, KarpenterGroup
from manager.autoscaler.cloudprovider.karpenter.departures import FailedClaim, KnownClaim
from manager.autoscaler.cloudprovider.karpenter.groups import SUFFIX_LENGTH, SUFFIX_LETTERS, BuyingState
from manager.autoscaler.cloudprovider.karpenter.prices import CataloguePrices
from manager.autoscaler.cloudprovider.karpenter.reading import KarpenterReader
from manager.autoscaler.pricing.model import PricingModel
from shared.api.core import Node
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, ServerError, TooManyRequests
from shared.kube.resources import NODECLAIMS

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Seen:
    """One look at everything. Replaced as a whole, so that two threads may read it."""

    state: BuyingState
    books: KarpenterBooks = field(default_factory=KarpenterBooks)
    claims: Mapping[str, NodeClaim] = field(default_factory=dict)
    by_group: Mapping[str, Sequence[NodeClaim]] = field(default_factory=dict)
    by_provider_id: Mapping[str, NodeClaim] = field(default_factory=dict)
    failed: Mapping[str, FailedClaim] = field(default_factory=dict)

    @property
    def groups(self) -> dict[str, KarpenterGroup]:
        """The file's, and created ones."""
        return {**self.books.groups, **{each.name: each for each in self.state.cloud.groups}}

    def claims_of(self, group: str) -> Sequence[NodeClaim]:
        return self.by_group.get(group, ())


class KarpenterProvider(Provider):
    """See `Provider`. Only claims with our label, and without a NodePool, are ever listed or deleted."""

    name = NAME

    def __init__(
        self,
        file: CloudFile,
        client: Client,
        ledger: KarpenterLedger,
        clock: Clock,
        *,
        may_write: bool,
        chance: random.Random | None = None,
    ) -> None:
        self._file = file
        self._client = client
        self._reader = KarpenterReader(client)
        self._ledger = ledger
        self._clock = clock
        self._may_write = may_write
        self._chance = chance or random.Random()
        self._seen = _Seen(BuyingState(file.cloud))
        self._known: dict[str, KnownClaim] = {}
        self._since: dict[str, float] = {}  # monotonic: when each claim was first seen
        self._deleted: set[str] = set()  # claims that we have deleted, while they are there
        self._compared: set[str] = set()  # machine types of which a Node has been read
        self._told: dict[str, str] = {}

    def refresh(self) -> None:
        cloud = self._file.reread()
        now = self._clock.now()
        defaults, problem = self._reader.defaults(cloud)
        listed = self._reader.claims()
        self._since = {name: self._since.get(name, self._clock.monotonic()) for name in listed}
        stuck = {
            name: claims.launch_error(each).message
            for name, each in listed.items()
            if claims.is_stuck(each, self._waited_seconds(name), cloud.launch_seconds)
        }
        for name, message in stuck.items():
            problem = problem or f"NodeClaim {name} gets no machine, and Karpenter waits for it: {message}"
        self._follow(listed, now)
        left_alone = {
            str(listed[name].offering): SoldOut(now + cloud.sold_out_seconds, message)
            for name, message in stuck.items()
        }
        books = self._written(self._ledger.read(), listed, left_alone, now, cloud.sold_out_seconds)
        withheld = cloud.catalogue.mismatches(books.reported)
        state = BuyingState(cloud, defaults, problem, withheld, books.sold_out)
        by_group: dict[str, list[NodeClaim]] = {}
        for each in listed.values():
            by_group.setdefault(each.group, []).append(each)
        by_provider_id = {each.status.provider_id: each for each in listed.values() if each.status.provider_id}
        seen = _Seen(state, books, listed, by_group, by_provider_id)
        failed = {name: each for name, each in self._seen.failed.items() if each.group in seen.groups}
        self._seen = replace(seen, failed=failed)
        self._report({"nothing can be bought": problem, **withheld})

    def groups(self) -> Sequence[Group]:
        seen = self._seen
        return [self._group(seen, each) for each in seen.groups.values()]

    def target_size(self, group: Group) -> int:
        return group.target_size

    def instances(self, group: str) -> Sequence[Instance]:
        seen = self._seen
        seconds = seen.state.cloud.launch_seconds
        there = (
            claims.instance(each, self._waited_seconds(each.metadata.name), seconds) for each in seen.claims_of(group)
        )
        return [*there, *(each.instance for each in seen.failed.values() if each.group == group)]

    def group_of(self, node: NodeRef) -> str | None:
        found = self._claim_of(node.provider_id)
        return None if found is None else found.group

    def launched_at(self, node: NodeRef) -> float | None:
        found = self._claim_of(node.provider_id)
        if found is None:
            raise Refused(NAME, "", f"{node.provider_id} is of no NodeClaim of ours")
        return found.metadata.created_at

    def template(self, group: str) -> Node:
        seen = self._seen
        return seen.state.template(self._group_named(seen, group))

    def pricing(self) -> PricingModel | None:
        return CataloguePrices(lambda: self._seen.state.cloud.catalogue)

    def increase(self, group: str, delta: int) -> None:
        """One claim for each machine; part of them may have been made when it fails."""
        seen, now = self._seen, self._clock.now()
        self._check_writes(group)
        found = self._group_named(seen, group)
        if problem := seen.state.refusal(found, now):
            raise Refused(NAME, group, problem)
        size = self._group(seen, found).target_size
        if size + delta > found.max:
            raise Refused(NAME, group, f"{size} + {delta} is above the maximum of {found.max}")
        machine = seen.state.cloud.catalogue.types[found.machine_type]
        for number in range(delta):
            name = f"{group}-{self._suffix()}"
            body = claims.body(name, found, machine, seen.state.defaults, seen.state.cloud.grace_seconds)
            try:
                self._client.create(NODECLAIMS, body, repeatable=True)
            except AlreadyExists:
                pass  # the first answer was lost: no other uses the name
            except HeadroomError as error:
                raise _provider_error(error, group, f"{number} of {delta} NodeClaims created", number) from error
            self._known[name] = KnownClaim(name, group, groups.offering_of(found))
            self._since[name] = self._clock.monotonic()

    def decrease_target(self, group: str, delta: int) -> None:
        raise Refused(NAME, group, "every machine of the target has a NodeClaim, which has to be deleted")

    def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        self._check_writes(group)
        wanted = {node.provider_id: self._deletable(group, node) for node in nodes}
        for number, (identity, claim) in enumerate(wanted.items()):
            if claim is None:
                name = identity.removeprefix(SCHEME)
                failed = {key: each for key, each in self._seen.failed.items() if key != name}
                self._seen = replace(self._seen, failed=failed)
                continue
            name = claim.metadata.name
            self._deleted.add(name)
            try:
                self._client.delete(NODECLAIMS, name, uid=claim.metadata.uid)
            except NotFound:
                pass
            except HeadroomError as error:
                self._deleted.discard(name)
                raise _provider_error(error, group, f"NodeClaim {name} could not be deleted", number) from error

    def machine_types(self) -> Sequence[str]:
        return self._seen.state.machine_types()

    def theoretical(self, spec: GroupSpec) -> Theoretical:
        state = self._seen.state
        found = state.made_of(spec, self._clock.now())
        return Theoretical(spec, found.name, found.max, state.template(found))

    def create_group(self, spec: GroupSpec) -> Created:
        """It is in the books; nothing is bought yet."""
        seen = self._seen
        self._check_writes("")
        made = seen.state.made_of(spec, self._clock.now(), self._suffix())
        if made.name in seen.groups:
            raise Later(NAME, made.name, "there is one of that name")
        self._write(msgspec.structs.replace(seen.books, groups={**seen.books.groups, made.name: made}))
        return Created(self._group(self._seen, made))

    def delete_group(self, group: str) -> None:
        seen = self._seen
        self._check_writes(group)
        if group not in seen.books.groups:
            raise Refused(NAME, group, "it is in the file, and stays")
        if seen.claims_of(group):
            raise Refused(NAME, group, f"not empty: {len(seen.claims_of(group))} NodeClaims")
        left = {name: each for name, each in seen.books.groups.items() if name != group}
        self._write(msgspec.structs.replace(seen.books, groups=left))

    def _follow(self, listed: Mapping[str, NodeClaim], now: float) -> None:
        """Remembers claims that have failed since the last look, and tells of those that others delete."""
        gone = [each for name, each in self._known.items() if name not in listed and name not in self._deleted]
        events = self._reader.warnings() if any(not each.registered for each in gone) else {}
        failed = departures.failures(self._known, listed, self._deleted, events, now)
        for each in failed:
            logger.warning("a NodeClaim has failed: %s", each.error.message, extra={"group": each.group})
        for deletion in departures.foreign_deletions(self._known, listed, self._deleted):
            logger.warning(
                "a node goes that Headroom has not deleted: NodeClaim %s, node %s. %s",
                deletion.name,
                deletion.node,
                deletion.reason,
                extra={"group": deletion.group},
            )
        self._seen = replace(self._seen, failed={**self._seen.failed, **{each.name: each for each in failed}})
        self._known = {name: departures.remember(each) for name, each in listed.items()}
        self._deleted &= listed.keys()

    def _written(
        self,
        before: KarpenterBooks,
        listed: Mapping[str, NodeClaim],
        left_alone: Mapping[str, SoldOut],
        now: float,
        seconds: float,
    ) -> KarpenterBooks:
        """The books with what was learnt since; offerings that launch nothing are `left_alone`."""
        created = {found.name: found for each in listed.values() if (found := each.created_group) is not None}
        sold_out = {name: each for name, each in before.sold_out.items() if each.until >= now}
        sold_out |= {name: each for name, each in left_alone.items() if name not in sold_out}
        sold_out |= {
            str(each.offering): SoldOut(each.at + seconds, each.error.message)
            for each in self._seen.failed.values()
            if each.is_stock_out and each.at + seconds >= now
        }
        reported = claims.latest_reports(listed.values())
        books = KarpenterBooks(
            created | before.groups, before.reported | self._with_nodes(before, reported, listed), sold_out
        )
        if books != before:
            try:
                self._ledger.write(books)
            except (Conflict, AlreadyExists) as error:
                raise Unavailable(NAME, "", f"the books have changed meanwhile: {error}") from error
        return books

    def _with_nodes(
        self, before: KarpenterBooks, reported: Mapping[str, dict[str, int]], listed: Mapping[str, NodeClaim]
    ) -> dict[str, dict[str, int]]:
        """The smaller of what claims and Nodes say; of each machine type one Node is read, once."""
        found = {}
        for machine_type, amounts in reported.items():
            up = next(
                (
                    each
                    for each in listed.values()
                    if each.offering.machine_type == machine_type and each.holds(claims.INITIALIZED)
                ),
                None,
            )
            known = before.reported.get(machine_type, {}) if machine_type in self._compared else {}
            if up is not None and machine_type not in self._compared:
                node = self._reader.node(up.status.node_name)
                known = claims.read_amounts((node.status.allocatable if node is not None else None) or {})
                self._compared.add(machine_type)
            found[machine_type] = {name: min(amount, known.get(name, amount)) for name, amount in amounts.items()}
        return found

    def _write(self, books: KarpenterBooks) -> None:
        try:
            self._ledger.write(books)
        except (Conflict, AlreadyExists) as error:
            raise Later(NAME, "", f"the books have changed meanwhile: {error}") from error
        self._seen = replace(self._seen, books=books)

    def _group(self, seen: _Seen, found: KarpenterGroup) -> Group:
        staying = sum(not each.is_leaving for each in seen.claims_of(found.name))
        failed = sum(each.group == found.name for each in seen.failed.values())
        return Group(
            id=found.name,
            min_size=found.min,
            max_size=found.max,
            target_size=staying + failed,
            autoprovisioned=found.autoprovisioned,
            labels=found.labels,
            debug=str(groups.offering_of(found)),
        )

    def _group_named(self, seen: _Seen, name: str) -> KarpenterGroup:
        found = seen.groups.get(name)
        if found is None:
            raise Refused(NAME, name, "there is no such group")
        return found

    def _claim_of(self, provider_id: str) -> NodeClaim | None:
        return self._seen.by_provider_id.get(provider_id)

    def _waited_seconds(self, name: str) -> float:
        """By our own clock: the API server's may differ by more than a machine takes."""
        now = self._clock.monotonic()
        return now - self._since.get(name, now)

    def _deletable(self, group: str, node: NodeRef) -> NodeClaim | None:
        """The claim of a node, None for one that has failed. Raises Refused for all others."""
        name = node.provider_id.removeprefix(SCHEME)
        if node.provider_id.startswith(SCHEME):
            if name in self._seen.failed:
                return None
            found = self._seen.claims.get(name)
        else:
            found = self._claim_of(node.provider_id)
        if found is None or found.group != group:
            raise Refused(NAME, group, f"node {node.name} ({node.provider_id}) is not in it")
        return found

    def _check_writes(self, group: str) -> None:
        if not self._may_write:
            raise Refused(NAME, group, "it is only read from")

    def _suffix(self) -> str:
        return "".join(self._chance.choices(SUFFIX_LETTERS, k=SUFFIX_LENGTH))

    def _report(self, problems: Mapping[str, str]) -> None:
        """Logs each problem once."""
        found = {what: problem for what, problem in problems.items() if problem}
        for what in (each for each in found if self._told.get(each) != found[each]):
            logger.warning("%s: %s", what, found[what], extra={"provider": NAME})
        self._told = found


def _provider_error(error: HeadroomError, group: str, what: str, done: int) -> ProviderError:
    """The server's no means that nothing has changed, unless part of it was `done` before."""
    refused = isinstance(error, ApiError) and not isinstance(error, ServerError | TooManyRequests) and not done
    return (Refused if refused else Unavailable)(NAME, group, f"{what}: {error}")
