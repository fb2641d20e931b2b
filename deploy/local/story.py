"""The story that a demo tells in its log: what nodes lend, a pod that gets busy, what is withdrawn from Mid, and which
promises are broken and kept. Pure.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from deploy.top import progress
from manager.nodeside.answers import NodeRow, Nodes
from manager.nodeside.node_prediction import PromiseRow
from shared.quantity import MILLI_PER_CORE

GIB = 2**30
WORTH_A_LINE_MILLI = 1000  # a change of usage or offer
KEPT_IN_A_ROW = 20  # promises


@dataclass(frozen=True)
class Scene:
    """What the manager says now; `promises` are those of the node with the busy pod."""

    answer: Nodes
    promises: Sequence[PromiseRow] = ()

    def row(self, node: str) -> NodeRow | None:
        return next((row for row in self.answer.nodes if row.name == node), None)


Story = Generator[str, Scene, None]
"""Yields the next line, or an empty one as long as nothing new has happened, and is sent the next scene."""


def begin(node: str, pod: str, simulated: int) -> Story:
    """The story of `pod` on `node`; `simulated` is the number of simulated nodes. The first line is empty."""
    scene = yield ""
    while not scene.answer.nodes or progress.starting(scene.answer, simulated):
        scene = yield ""
    nodes = scene.answer.nodes
    cpu_milli, memory_bytes = (sum(getattr(row.mid, of) for row in nodes) for of in ("cpu_milli", "memory_bytes"))
    scene = yield (
        f"All {len(nodes)} nodes report. Prod pods request more than they will use, so that the nodes lend "
        f"{_cores(cpu_milli)} and {memory_bytes / GIB:.0f} GiB to Mid pods"
    )
    scene = yield (
        f"{node}: pod {pod} requests 4 cores and is idle for a minute. The node lends most of them, "
        f"{_cores(_offered(scene, node))} in all"
    )
    scene, lent_milli = yield from _busy(scene, node, pod)
    while lent_milli - _offered(scene, node) < WORTH_A_LINE_MILLI:
        scene = yield ""
    left_milli = _offered(scene, node)
    scene = yield (
        f"{node}: {_cores(lent_milli - left_milli)} are withdrawn from Mid pods, and {_cores(left_milli)} stay on "
        "offer, so that Prod pods get what they request"
    )
    yield from _promises(scene, node)


def _busy(scene: Scene, node: str, pod: str) -> Generator[str, Scene, tuple[Scene, int]]:
    """Until the pod is busy. Returns the most that was lent before, too."""
    least_milli, most_lent_milli = _used(scene, node), _offered(scene, node)
    while _used(scene, node) - least_milli < WORTH_A_LINE_MILLI:
        least_milli = min(least_milli, _used(scene, node))
        most_lent_milli = max(most_lent_milli, _offered(scene, node))
        scene = yield ""
    row = scene.row(node)
    peak = f", and their predicted peak is {_cores(row.predicted_peak.cpu_milli)}" if row and row.predicted_peak else ""
    scene = yield (
        f"{node}: pod {pod} gets busy. Prod pods use {_cores(_used(scene, node))}, up from {_cores(least_milli)}{peak}"
    )
    return scene, most_lent_milli


def _promises(scene: Scene, node: str) -> Story:
    """Of the shortest horizon: a prediction is a promise that usage stays below it."""
    while not (of := _promise(scene)) or not _broken(of):
        scene = yield ""
    broken, outcomes = _broken(of), of.outcomes
    scene = yield (
        f"{node}: a promise is broken. Usage rose above the peak that was predicted for the next hour, in {broken} of "
        f"{outcomes} hours. From now on the node keeps a larger margin"
    )
    while (of := _promise(scene)) is None or of.outcomes < outcomes + KEPT_IN_A_ROW or _broken(of) > broken:
        if of is not None and _broken(of) > broken:
            broken, outcomes = _broken(of), of.outcomes
        scene = yield ""
    yield (
        f"{node}: promises are kept again. Usage stayed below the predicted peak in the last {of.outcomes - outcomes} "
        f"hours; {broken} of {of.outcomes} promises were broken, and the target is "
        f"{of.target_violation_percent or 0:g} %"
    )


def _promise(scene: Scene) -> PromiseRow | None:
    of_cpu = [each for each in scene.promises if each.resource == "cpu"]
    return min(of_cpu, key=lambda each: each.horizon_seconds, default=None)


def _broken(of: PromiseRow) -> int:
    return round(of.outcomes * (of.violation_percent or 0) / 100)


def _used(scene: Scene, node: str) -> int:
    row = scene.row(node)
    return row.prod_used.cpu_milli if row and row.prod_used else 0


def _offered(scene: Scene, node: str) -> int:
    row = scene.row(node)
    return row.mid.cpu_milli if row else 0


def _cores(milli: int) -> str:
    return f"{milli / MILLI_PER_CORE:.1f} cores"
