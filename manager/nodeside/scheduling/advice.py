"""Advice to schedulers about many nodes at once, from the present caches.

The sums of every node are cached between requests, as long as Node, NodeMetric and pods stay unchanged.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from manager.nodeside.assumed import AssumedPod, AssumedPods
from manager.nodeside.noderesource import holdings
from manager.nodeside.noderesource.explain import Decision
from manager.nodeside.noderesource.holdings import Holding
from manager.nodeside.noderesource.report import NodeReport
from manager.nodeside.scheduling import bound, estimate, loadaware
from manager.nodeside.scheduling.args import LoadAwareArgs
from manager.nodeside.scheduling.bound import ResourceShortfall
from manager.nodeside.scheduling.loadaware import Incoming, NodeLoad
from manager.pods import NOTHING, PodRecord, record
from shared.api.core import Node, Pod
from shared.clock import Clock
from shared.names import LENDING_CLASSES, Tier
from shared.quantity import QuantityError, Resources

SWEEP_VIEWS = 100
DETAILED_REFUSALS = 10  # with more nodes, amounts of each would make an unreadable message


class AdviceSources(Protocol):
    """The sources of the answers."""

    def unsynced(self) -> list[str]: ...
    def node(self, name: str) -> Node | None: ...
    def report(self, name: str) -> NodeReport | None: ...
    def pods(self, name: str) -> Collection[PodRecord]: ...


class NodeRefusal(NamedTuple):
    """Why a pod should not go to a node: a label for metrics, and a sentence."""

    cause: str
    message: str


class NodeView(msgspec.Struct, frozen=True):
    """The sums of one node, and their inputs. `load` is None without a usable NodeMetric.

    Pods beyond what is on offer count in no sum.
    """

    node: Node
    report: NodeReport | None
    pods: Collection[PodRecord]
    held: Mapping[Tier, Holding]
    load: NodeLoad | None


class Advisor:
    """Filters and scores nodes for one pod. Safe for any thread.

    `decision` returns the last decision about a node, `now` the time in Unix seconds. `why_refused` returns why a pod
    may go to no node at all.
    """

    def __init__(
        self,
        cluster: AdviceSources,
        decision: Callable[[str], Decision | None],
        args: LoadAwareArgs,
        clock: Clock,
        *,
        assumed: AssumedPods | None = None,
        why_refused: Callable[[PodRecord], str | None] = lambda _: None,
    ) -> None:
        self.args = args
        self._why_refused = why_refused
        self._assumed = assumed or AssumedPods(clock)
        self._judging = threading.Lock()  # one pod of a tier at a time, as it counts for the next
        self.decision = decision
        self.now = clock.now
        self._cluster = cluster
        self._views: dict[str, NodeView] = {}
        self._sweep_at = SWEEP_VIEWS

    def refused(self, pod: Pod, names: Collection[str]) -> dict[str, NodeRefusal]:
        """The nodes to which the pod should not go. On the others it counts until its binding is observed.

        An unknown node is not refused, and no node is refused before the caches are complete: no pod waits because the
        manager is behind.
        """
        if self._cluster.unsynced():
            return {}
        known = record(pod)
        incoming, asked = self._incoming(pod, known), bound.asked(known)
        if not asked:
            return self._refused(known, incoming, asked, names)
        with self._judging:
            found = self._refused(known, incoming, asked, names)
            self._assumed.assume(known, [name for name in names if name not in found])
        return found

    def _refused(
        self, known: PodRecord, incoming: Incoming, asked: Mapping[Tier, Resources], names: Collection[str]
    ) -> dict[str, NodeRefusal]:
        if asked and (why := self._why_refused(known)) is not None:
            return {name: NodeRefusal("namespace", why) for name in names}
        now, assumed = self.now(), self._assumed.others(known) if asked else []
        found: dict[str, NodeRefusal] = {}
        short: dict[str, ResourceShortfall] = {}
        for name in names:
            view = self.view(name)
            if view is None:
                continue
            if asked and (missing := self._shortfall(view, asked, assumed, now)) is not None:
                short[name] = missing
            elif view.load is not None:
                why = loadaware.why_refused(view.load, incoming, self.args, now)
                if why is not None:
                    found[name] = NodeRefusal("expired" if why == loadaware.EXPIRED else "usage", why)
        is_detailed = len(short) <= DETAILED_REFUSALS
        for name, missing in short.items():
            found[name] = NodeRefusal("shrunk", missing.detailed if is_detailed else missing.brief)
        return found

    def _shortfall(
        self, view: NodeView, asked: Mapping[Tier, Resources], assumed: Iterable[AssumedPod], now: float
    ) -> ResourceShortfall | None:
        name = view.node.metadata.name
        others = [each.pod for each in assumed if name in each.nodes]
        shown = {tier: holdings.on_offer(view.node, tier) or NOTHING for tier in asked} if others else {}
        return bound.shortfall(asked, view.held, self.decision(name), now, shown=shown, assumed=others)

    def scores(self, pod: Pod, names: Sequence[str]) -> list[int]:
        """The score of each of the nodes, 0..100; 0 for an unknown node."""
        if self._cluster.unsynced():
            return [0] * len(names)
        incoming, now, args = self._incoming(pod, record(pod)), self.now(), self.args
        views = map(self.view, names)
        return [
            0 if view is None or view.load is None else loadaware.score(view.load, incoming, args, now)
            for view in views
        ]

    def view(self, name: str) -> NodeView | None:
        """The node's present sums; None for an unknown node, or an invalid allocatable."""
        node = self._cluster.node(name)
        if node is None:
            self._views.pop(name, None)
            return None
        report, pods, view = self._cluster.report(name), self._cluster.pods(name), self._views.get(name)
        if view is not None and view.node is node and view.report is report and view.pods is pods:
            return view
        if view is not None and view.pods is pods and view.node is node:
            held = view.held
        else:
            held = holdings.find(node, pods, None)
        uncounted = {pod.key for each in held.values() for pod in each.beyond}
        counted = [pod for pod in pods if pod.key not in uncounted] if uncounted else pods
        try:
            load = None if report is None else loadaware.load(node, report, counted, self.args)
        except QuantityError:
            return None
        view = self._views[name] = NodeView(node, report, pods, held, load)
        if len(self._views) > self._sweep_at:
            self._sweep()
        return view

    def count(self) -> int:
        return len(self._views)

    def _sweep(self) -> None:
        """Drops deleted nodes, which no scheduler asks about."""
        self._views = {name: view for name, view in list(self._views.items()) if self._cluster.node(name) is not None}
        self._sweep_at = max(SWEEP_VIEWS, 2 * len(self._views))

    def _incoming(self, pod: Pod, known: PodRecord) -> Incoming:
        return Incoming(
            estimate.estimate(known, self.args),
            is_prod=known.priority_class in LENDING_CLASSES,
            is_of_daemon_set=any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references or ()),
        )
