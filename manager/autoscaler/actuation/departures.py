"""Nodes on their way out, one step after the other: marked, drained, deleted, or taken back where that fails.

Rounds begin departures and ask how they are going; one thread takes their steps. Nothing of it outlasts the process:
whoever leads next finds the marks, and takes back those that nobody works on. Durations are of the monotonic clock, so
that a wall clock that jumps takes no node away and keeps none.
"""

import itertools
import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Protocol

from manager.autoscaler.actuation import deletion_marks
from manager.autoscaler.actuation.deletion_marks import DeletionMarks, Vanished
from manager.autoscaler.actuation.departing import Departure, Doubt, Gone, Moments
from manager.autoscaler.actuation.drains import Draining, Stays, Tenants
from manager.autoscaler.cloudprovider.contract import InstanceState, NodeRef
from manager.autoscaler.cloudprovider.errors import ProviderError, Refused
from manager.autoscaler.cloudprovider.guard import CloudObservation, Guard
from manager.autoscaler.scale_down import pods_on_nodes
from manager.autoscaler.scale_down.budgets import DeletionCounts
from manager.autoscaler.scale_down.deletions_in_progress import DeletionsInProgress
from manager.autoscaler.scale_down.leaving import DeletionProgress, DeletionStage
from manager.autoscaler.scale_down.pods_on_nodes import Controllers
from manager.autoscaler.scale_down.removal_status import NodeToRemove, ScaleDownHistory
from manager.autoscaler.scale_down.rules import ActuationOptions, DrainRules
from shared.api.core import Node, Pod
from shared.api.workloads import PodDisruptionBudget
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.resources import PODS

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0  # all pods of the cluster are gone through each time
MARKING_SECONDS = 5.0  # after which a mark that cannot be written is given up
AGAIN_SECONDS = 5.0  # between two tries to take a mark back
SILENCE_SECONDS = 60.0  # after a deletion that was not answered, until a machine that is there counts as kept
CLOUD_SECONDS = 600.0  # for which a node waits for a cloud that says nothing
GONE_SECONDS = 900.0  # for which the Node of a machine that is deleted is passed over
ANNOTATION_HOLD = "delay-deletion.cluster-autoscaler.kubernetes.io/"  # what such annotations begin with
_ATTEMPT_SECONDS = 10.0


class Sight(Protocol):
    """What is known of the cluster. `listers.Listers` is one."""

    def node(self, name: str) -> Node | None: ...
    def pods_on(self, nodes: Container[str]) -> dict[str, list[Pod]]: ...
    def controllers(self) -> Controllers | None: ...
    def budgets(self) -> tuple[PodDisruptionBudget, ...]: ...
    def stale(self) -> list[str]: ...


class Departures:
    """`run` is for a thread of its own, `step` for that and for tests; all else for the thread that makes rounds."""

    def __init__(
        self,
        client: Client,
        sight: Sight,
        guard: Guard,
        cloud_lock: threading.Lock,
        actuation: ActuationOptions,
        rules: DrainRules,
        *,
        expendable_below: int,
        clock: Clock,
        may_write: Callable[[], bool],
    ) -> None:
        """Whoever speaks to the cloud holds the lock. Pods of a priority below `expendable_below` keep no node."""
        self._client = client.single_attempt(_ATTEMPT_SECONDS)
        self._sight = sight
        self._guard = guard
        self._cloud_lock = cloud_lock
        self._actuation = actuation
        self._rules = rules
        self._expendable_below = expendable_below
        self._clock = clock
        self._may_write = may_write
        self._marks = DeletionMarks(client, clock, cordons=actuation.cordons)
        self._lock = threading.Lock()  # of what follows; never held while anybody is spoken to
        self._departures: dict[str, Departure] = {}
        self._ended: list[DeletionProgress] = []
        self._gone: dict[str, Gone] = {}
        self._abandoned: dict[str, float] = {}  # when it was last tried to take their marks back
        self._moments = Moments()
        self._accepted: Counter[str] = Counter()
        self._observation = 0
        self._staying: frozenset[str] = frozenset()  # machines the cloud keeps, and those that it is deleting
        self._deleted: frozenset[str] = frozenset()
        self._spare: Counter[str] = Counter()  # nodes above the minimum of each group that the cloud told of

    def begin(
        self, removals: Iterable[NodeToRemove], nodes: Mapping[str, Node], atomic: Collection[str] = ()
    ) -> list[str]:
        """These go from now on; the names of those that do. `atomic` groups go as a whole."""
        wall, now = self._clock.now(), self._clock.monotonic()
        begun = []
        with self._lock:
            for each in removals:
                node = nodes.get(each.node)
                if node is None or each.node in self._departures or each.node in self._gone:
                    continue
                self._abandoned.pop(each.node, None)
                self._departures[each.node] = Departure(
                    each, NodeRef.from_node(node), node.metadata.uid, wall, now, each.group in atomic
                )
                begun.append(each.node)
        return begun

    def take_back(self, names: Iterable[str]) -> None:
        """Marks on these nodes are nobody's any more."""
        with self._lock:
            for name in names:
                if name not in self._departures and name not in self._gone:
                    self._abandoned.setdefault(name, -AGAIN_SECONDS)

    def observed(self, observed: CloudObservation) -> None:
        """The cloud was looked at; the caller holds the lock of the cloud since before it was."""
        instances = [each for group in observed.groups.values() for each in group.instances]
        deleted = frozenset(each.provider_id for each in instances if each.state is InstanceState.DELETING)
        spare = {name: each.group.target_size - each.group.min_size for name, each in observed.groups.items()}
        with self._lock:
            self._observation += 1
            self._deleted = deleted
            self._spare = Counter(spare)
            self._staying = frozenset(each.provider_id for each in instances) - deleted

    def added(self, groups: Iterable[str]) -> None:
        """Nodes were asked for in these groups."""
        with self._lock:
            for group in groups:
                self._moments.note("added", group, self._clock.monotonic())

    def in_progress(self) -> DeletionCounts:
        with self._lock:
            drained = sum(each.removal.is_drained for each in self._departures.values())
            return DeletionCounts(len(self._departures) - drained, drained)

    def seen(self) -> tuple[DeletionProgress, ...]:
        """All that are on their way, and those whose way has ended since this was last asked."""
        with self._lock:
            ended, self._ended = self._ended, []
            return (*ended, *(each.told() for each in self._departures.values()))

    def accepted(self) -> dict[str, int]:
        """By group, how many nodes the cloud has taken since this was last asked."""
        with self._lock:
            found, self._accepted = self._accepted, Counter()
            return dict(found)

    def underway(self, leaving: tuple[DeletionProgress, ...], memory: ScaleDownHistory) -> DeletionsInProgress:
        """All of it for one round, for which `seen` has given `leaving`."""
        in_progress = self.in_progress()
        with self._lock:
            offset = self._clock.now() - self._clock.monotonic()
            happened, happened_in = self._moments.told(offset)
            gone = {name: each.group for name, each in self._gone.items()}
        return DeletionsInProgress(memory, leaving, gone, in_progress, happened, happened_in)

    def forget(self) -> None:
        """Somebody else leads, and finds the marks."""
        with self._lock:
            self._departures.clear()
            self._ended.clear()
            self._gone.clear()
            self._abandoned.clear()
            self._accepted.clear()
            self._moments = Moments()

    def run(self, stop: threading.Event) -> None:
        """Step after step, until `stop`."""
        while not self._clock.wait(stop, PAUSE_SECONDS):
            self.step()

    def step(self) -> None:
        """What is to be done now for all of them."""
        if not self._may_write():
            return
        with self._lock:
            there, abandoned = list(self._departures.values()), list(self._abandoned)
        self._forget_gone()
        for name in abandoned:
            self._unmark_abandoned(name)
        if not there:
            return
        on_nodes = self._sight.pods_on({each.name for each in there})
        controllers, budgets, now = self._sight.controllers(), self._sight.budgets(), self._clock.now()
        for each in there:
            try:
                self._advance(each, self._tenants(on_nodes.get(each.name, ()), now, controllers, budgets))
            except Vanished as error:
                logger.info("gone by itself: %s", error, extra={"node": each.name})
                self._end(each, DeletionStage.GONE)
            except Stays as error:
                self._fail(each, str(error))
        self._delete_ready([each for each in there if self._is_ready(each)])

    def _advance(self, of: Departure, tenants: Tenants) -> None:
        """One step of one node. Raises Vanished and Stays."""
        now = self._clock.monotonic()
        if of.error:
            self._roll_back(of, now)
        elif of.doubt is not None:
            self._resolve(of, of.doubt, now)
        elif of.marked_at is None:
            self._mark(of, now)
        elif now - of.marked_at >= self._actuation.delay_seconds and of.ready_at is None:
            if of.draining is None:
                if not self._is_spare(of, now - of.marked_at):
                    return
                of.draining = Draining(self._rules, self._actuation, of.removal.is_drained, now)
            of.stage = DeletionStage.DRAINING
            if of.draining.step(tenants, self._client, self._may_write, now) and not self._sight.stale():
                of.stage, of.ready_at = DeletionStage.DELETING, now

    def _tenants(
        self,
        pods: Iterable[Pod],
        now: float,
        controllers: Controllers | None = None,
        budgets: tuple[PodDisruptionBudget, ...] = (),
    ) -> Tenants:
        matter = tuple(pod for pod in pods if pods_on_nodes.needs_attention(pod, self._expendable_below))
        return Tenants(matter, controllers, budgets, now)

    def _is_spare(self, of: Departure, waited_seconds: float) -> bool:
        """Whether its group can do without it, and without those that were chosen before. Raises Stays where it cannot,
        and where the cloud does not tell for too long.
        """
        with self._lock:
            spare = self._spare.get(of.group)
            before = itertools.takewhile(lambda each: each is not of, self._departures.values())
            going = sum(
                each.group == of.group and not each.error and each.ref.provider_id not in self._deleted
                for each in before
            )
        if spare is not None and spare <= going:
            raise Stays(f"its group can do without {max(0, spare)} nodes, and {going} others go already")
        if spare is None and waited_seconds > CLOUD_SECONDS:
            raise Stays("the cloud does not say how large its group is")
        return spare is not None

    def _mark(self, of: Departure, now: float) -> None:
        if not self._may_write():
            return
        try:
            self._marks.mark(of.name, of.uid)
        except Vanished:
            raise
        except HeadroomError as error:
            if self._clock.monotonic() - of.began_at >= MARKING_SECONDS:
                raise Stays(f"it could not be marked: {error}") from error
            return
        of.marked_at = now
        logger.info("marked as being deleted", extra={"node": of.name, "group": of.group})

    def _roll_back(self, of: Departure, now: float) -> None:
        if (of.tried_at is not None and now - of.tried_at < AGAIN_SECONDS) or not self._may_write():
            return
        of.tried_at = now
        try:
            self._marks.unmark(of.name, of.uid)
        except Vanished:
            raise
        except HeadroomError as error:
            logger.warning("mark not taken back yet: %s", error, extra={"node": of.name})
            return
        self._end(of, DeletionStage.FAILED)

    def _resolve(self, of: Departure, doubt: Doubt, now: float) -> None:
        """What has become of a deletion that failed. Raises Stays."""
        with self._lock:
            is_news = self._observation > doubt.observation and of.group in self._spare
            is_there = of.ref.provider_id in self._staying
        if is_news and not is_there:
            self._taken(of)
        elif is_news and now >= doubt.until:
            of.doubt = None
            if not doubt.of_many or of.atomic:
                raise Stays(f"the cloud did not delete it: {doubt.error}")
            of.alone = True  # the next time nobody else is asked about in the same breath
        elif now - doubt.until > CLOUD_SECONDS:
            raise Stays(f"the cloud does not say what became of it: {doubt.error}")

    def _is_ready(self, of: Departure) -> bool:
        return of.ready_at is not None and of.doubt is None and not of.error and of.stage is DeletionStage.DELETING

    def _delete_ready(self, ready: Sequence[Departure]) -> None:
        now = self._clock.monotonic()
        by_group: dict[str, list[Departure]] = {}
        for each in ready:
            if each.ref.provider_id in self._deleted:  # somebody else has seen to it
                self._end(each, DeletionStage.GONE)
            elif not self._is_held(each, now):
                by_group.setdefault(each.group, []).append(each)
        for group, members in by_group.items():
            if self._waits(group, members, now):
                continue
            together = [each for each in members if not each.alone]
            for batch in (together, *([each] for each in members if each.alone)):
                going = [each for each in batch if self._is_still_empty(each)]
                if not going or (going != batch and any(each.atomic for each in batch)):
                    continue
                if not self._may_write() or self._guard.is_in_doubt(group):
                    break
                self._delete(group, going)

    def _is_held(self, of: Departure, now: float) -> bool:
        """Whether its annotations ask for it to be kept, and not for too long."""
        assert of.ready_at is not None
        node = self._sight.node(of.name)
        asks = node is not None and any(each.startswith(ANNOTATION_HOLD) for each in node.metadata.annotations or ())
        return asks and now - of.ready_at < self._actuation.hold_seconds

    def _waits(self, group: str, members: Sequence[Departure], now: float) -> bool:
        """Whether more of its group are gathered first."""
        with self._lock:
            atomic = sum(each.atomic for each in self._departures.values() if each.group == group)
        if atomic and sum(each.atomic for each in members) < atomic:
            return True
        return now - min(each.ready_at or now for each in members) < self._actuation.gather_seconds

    def _is_still_empty(self, of: Departure) -> bool:
        """Asked of the API server itself: what is deleted cannot be taken back."""
        try:
            node = self._marks.fresh(of.name, of.uid)
            if not deletion_marks.is_marked(node):
                raise Stays("somebody has taken its mark off")
            found = self._client.list(PODS, into=Pod, field_selector=f"spec.nodeName={of.name}")
            if found.refused:
                raise Stays(f"a pod on it cannot be read: {found.refused[0].key}")
        except Vanished:
            self._end(of, DeletionStage.GONE)
            return False
        except Stays as error:
            self._fail(of, str(error))
            return False
        except HeadroomError as error:
            logger.warning("not deleted yet: %s", error, extra={"node": of.name})
            self._give_up_late(of, error)
            return False
        if self._tenants(found.items, self._clock.now()).moving():
            of.stage, of.ready_at = DeletionStage.DRAINING, None  # and they are judged there
            return False
        return True

    def _delete(self, group: str, going: Sequence[Departure]) -> None:
        refs = [each.ref for each in going]
        with self._cloud_lock:
            if not self._may_write() or self._guard.is_in_doubt(group):
                return
            try:
                self._guard.delete_nodes(group, refs)
            except ProviderError as error:
                self._not_deleted(group, going, error)
                return
            with self._lock:
                self._spare[group] -= len(going)
            for each in going:
                self._taken(each)

    def _not_deleted(self, group: str, going: Sequence[Departure], error: ProviderError) -> None:
        logger.error("not deleted: %s", error, extra={"group": group, "nodes": ", ".join(each.name for each in going)})
        now, many = self._clock.monotonic(), len(going) > 1
        was_asked = self._guard.is_in_doubt(group)
        for each in going:
            if was_asked:
                silence = 0.0 if isinstance(error, Refused) else SILENCE_SECONDS
                each.doubt = Doubt(error, self._observation, now + silence, many)
            elif not isinstance(error, Refused):
                self._give_up_late(each, error)
            elif many and not each.atomic:
                each.alone = True
            else:
                self._fail(each, str(error))

    def _give_up_late(self, of: Departure, error: HeadroomError) -> None:
        if of.ready_at is not None and self._clock.monotonic() - of.ready_at > CLOUD_SECONDS:
            self._fail(of, str(error))

    def _taken(self, of: Departure) -> None:
        """The cloud has accepted: it is not part of its group any more."""
        logger.info("node deleted", extra={"node": of.name, "group": of.group, "kind": of.removal.kind})
        now = self._clock.monotonic()
        with self._lock:
            self._gone[of.name] = Gone(of.group, of.uid, now + GONE_SECONDS)
            self._accepted[of.group] += 1
            self._moments.note("deleted", of.group, now)
        self._end(of, DeletionStage.GONE)

    def _fail(self, of: Departure, why: str) -> None:
        """It stays, and so do the others of a group that goes as a whole."""
        if of.error:
            return
        logger.error("the node stays: %s", why, extra={"node": of.name, "group": of.group})
        of.error = why
        with self._lock:
            self._moments.note("failed", of.group, self._clock.monotonic())
            others = [each for each in self._departures.values() if each.atomic and each.group == of.group]
        for each in others if of.atomic else ():
            if each.doubt is None:
                each.error = each.error or f"node {of.name} of the same group stays: {why}"

    def _end(self, of: Departure, stage: DeletionStage) -> None:
        of.stage = stage
        with self._lock:
            if self._departures.get(of.name) is of:
                del self._departures[of.name]
                self._ended.append(of.told())

    def _unmark_abandoned(self, name: str) -> None:
        now = self._clock.monotonic()
        with self._lock:
            if now - self._abandoned.get(name, now) < AGAIN_SECONDS:
                return
            self._abandoned[name] = now
        if not self._may_write():
            return
        try:
            self._marks.unmark(name)
            logger.warning("mark of nobody taken back", extra={"node": name})
        except Vanished:
            pass
        except HeadroomError as error:
            logger.warning("mark of nobody not taken back yet: %s", error, extra={"node": name})
            return
        with self._lock:
            self._abandoned.pop(name, None)

    def _forget_gone(self) -> None:
        """Nodes that are not there any more, or for so long that their machines are not going."""
        now = self._clock.monotonic()
        with self._lock:
            for name, each in list(self._gone.items()):
                node = self._sight.node(name)
                if node is None or node.metadata.uid != each.uid or now > each.until:
                    del self._gone[name]
