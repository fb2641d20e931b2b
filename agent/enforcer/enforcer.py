"""Writes the table's values for the pods in the orders, and holds best-effort pods to their quota, again and again.

No state matters between rounds: each starts from the files as they are, so it also completes a round that was killed at
any point. Bounds of pods stay when the enforcer ends, because they belong to the pods; the quota of best-effort pods
ends with the enforcer, and 30 seconds after the agent's last orders.
"""

import errno
import logging
import math
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from agent.enforcer import bounds, orders, status, table
from agent.enforcer.bounds import BoundOutcome, CgroupBound, ReportedBounds
from agent.enforcer.orders import Orders, PodOrder
from agent.enforcer.settings import EnforcerSettings
from agent.enforcer.status import EnforcerStatus
from agent.enforcer.table import Choices, Knob, Setting
from agent.enforcer.tree import GONE, NotAllowed, Tree
from agent.enforcer.watch import FileWatch
from agent.metrics_advisor import cgroups
from agent.metrics_advisor.cgroups import Layout, PodName
from shared.errors import InvalidInput
from shared.names import KubeQoS
from shared.telemetry import OncePerMinute

logger = logging.getLogger(__name__)
logger.addFilter(OncePerMinute())
changes = logging.getLogger(f"{__name__}.changes")

ROUND_SECONDS = 1.0
RECONCILE_SECONDS = 10.0  # the kubelet rewrites its classes each minute, and pods when they are created or resized
STALE_SECONDS = 30.0

_AGAIN = CgroupBound(cgroup="", file="", term="", amount=None, unit="", value="", outcome=BoundOutcome.REFUSED, at=0.0)


class Enforcer:
    """One thread calls `round` each second, `restore` when `watch` tells of a write, and `release` at the end."""

    def __init__(
        self,
        settings: EnforcerSettings,
        monotonic: Callable[[], float] = time.monotonic,
        watch: FileWatch | None = None,
    ) -> None:
        self._root, self._parent = Path(settings.cgroup_root), settings.cgroup_parent
        self._orders_dir = Path(settings.orders_dir)
        self._status_dir = Path(settings.status_dir) if settings.status_dir else None
        self._choices = Choices(settings.batch_weight_percent, settings.batch_idle)
        self._monotonic = monotonic
        self._watch = watch
        self._started_at = monotonic()
        self._orders: Orders | None = None
        self._asked: tuple[tuple[PodOrder, ...], bool] = ((), False)
        self._reconcile_at = -math.inf
        self._tree: Tree | None = None
        self._status = EnforcerStatus(at=self._started_at, best_effort_usec=table.UNLIMITED)
        self._told: dict[str, ReportedBounds] = {}
        self._told_body = b""

    def round(self) -> None:
        """One second's work; a failure is reported and tried again."""
        now = self._monotonic()
        self._read_orders()
        current = self._orders
        # Orders from the future date from before a reboot.
        fresh = current if current is not None and -ROUND_SECONDS <= now - current.at <= STALE_SECONDS else None
        due = now >= self._reconcile_at or (fresh is not None and _asked(fresh) != self._asked)
        if due:
            self._reconcile_at = now + RECONCILE_SECONDS
            self._find(fresh)
        if fresh is not None and due:
            self._asked = _asked(fresh)
            self._reconcile(fresh)
        if fresh is not None:
            self._suppress(fresh)
        elif current is not None or now - self._started_at >= STALE_SECONDS:
            self.release()
        if due:
            self._tell(now)

    def restore(self) -> None:
        """Writes the quota of best-effort pods again where another process has replaced it.

        systemd writes a slice's own quota, which is none, with whatever else it is told of the slice, and kubelets with
        the driver systemd tell it a weight each minute and with every pod.
        """
        tree, held_usec = self._tree, self._status.best_effort_usec
        if tree is None or held_usec < 0:
            return
        try:
            if tree.quota(tree.best_effort).usec != held_usec:
                tree.set_quota(tree.best_effort, held_usec)
                self._status.restored += 1
        except (OSError, ValueError, NotAllowed) as error:
            self._went_wrong(tree.best_effort, error)

    def release(self) -> None:
        """Removes the quota of best-effort pods."""
        tree = self._tree
        if tree is None:
            return
        try:
            before = tree.quota(tree.best_effort).usec
            if before >= 0:
                tree.set_quota(tree.best_effort, table.UNLIMITED)
                changes.info("best-effort pods are held down no more", extra={"before_usec": before})
        except (OSError, ValueError, NotAllowed) as error:
            self._went_wrong(tree.best_effort, error)
        else:
            self._status.best_effort_usec = table.UNLIMITED

    def _read_orders(self) -> None:
        try:
            found = orders.read(self._orders_dir)
        except InvalidInput as error:
            self._status.refused_orders += 1
            self._status.problem = str(error)[: status.MOST_TEXT]
            logger.error("orders rejected, the last valid ones stay in effect: %s", error)
            return
        if found is not None:
            self._orders = found

    def _find(self, current: Orders | None) -> None:
        """Looks for the kubelet's tree, which may appear after our start, or again under other names."""
        pods = [PodName(order.qos, (order.uid,)) for order in (current.pods if current else ())]
        layout = cgroups.detect(self._root, self._parent, pods)
        if layout is None:
            self._tree = None
            logger.warning("pods are not bounded: there is no cgroup of a kubelet below %s", self._root)
            return
        if self._tree is None or self._tree.layout != layout:
            self._tree = Tree(layout)
            logger.info("pods are bounded through %s", _said(layout))
        if self._watch is not None:
            try:
                self._tree.follow_quota(self._watch)
            except (OSError, NotAllowed) as error:
                self._went_wrong(self._tree.best_effort, error)

    def _reconcile(self, current: Orders) -> None:
        tree = self._tree
        if tree is None:
            return
        told = {}
        for order in current.pods:
            wanted = table.settings(order, tree.layout, self._choices, suppressed=current.suppress is not None)
            found = {each: self._apply(tree, each, final=False) for each in wanted}
            for each, bound in found.items():
                # v1 refuses a quota below those of the cgroups inside, so a refused one is tried once more at the end.
                if bound is _AGAIN:
                    found[each] = self._apply(tree, each, final=True)
            now = [bound for bound in found.values() if bound is not None]
            written = [bound for bound in now if bound.outcome is BoundOutcome.WRITTEN]
            if written:
                names = ", ".join(f"{each.cgroup[-24:]} {each.file} {each.before} -> {each.value}" for each in written)
                about = {"pod": order.key, "uid": order.uid, "tier": order.tier}
                changes.info("bounds written: %s", names, extra=about | {"bounds": msgspec.to_builtins(written)})
            before = self._told[order.uid].bounds if order.uid in self._told else ()
            told[order.uid] = bounds.of_pod(order.key, order.tier, bounds.followed(before, now))
        self._told = told

    def _apply(self, tree: Tree, setting: Setting, *, final: bool) -> CgroupBound | None:
        """The outcome; None where the kernel has no such knob, and `_AGAIN` for another try."""
        try:
            if setting.knob is Knob.IDLE and not tree.has(setting.path, Knob.IDLE):
                return None
            if setting.only_without_idle and tree.has(setting.path, Knob.IDLE):
                return None
            stood = tree.set(setting.path, setting.knob, setting.value)
        except OSError as error:
            if error.errno == errno.EINVAL and not final:
                return _AGAIN
            self._went_wrong(setting.path, error)
            gone = error.errno in GONE
            return self._bound(tree, setting, BoundOutcome.GONE if gone else BoundOutcome.REFUSED, problem=str(error))
        except (ValueError, NotAllowed) as error:
            self._went_wrong(setting.path, error)
            return self._bound(tree, setting, BoundOutcome.REFUSED, problem=str(error))
        if not stood.changed:
            return self._bound(tree, setting, BoundOutcome.STANDS, value=stood.wanted)
        self._status.written += 1
        return self._bound(tree, setting, BoundOutcome.WRITTEN, value=stood.wanted, before=stood.before)

    def _bound(
        self,
        tree: Tree,
        setting: Setting,
        outcome: BoundOutcome,
        *,
        value: str = "",
        before: str = "",
        problem: str = "",
    ) -> CgroupBound:
        term, amount, unit = setting.term
        return CgroupBound(
            cgroup=setting.path,
            file=table.FILES[tree.v2].get(setting.knob, setting.knob.name),
            term=term,
            amount=amount,
            unit=unit,
            value=value,
            outcome=outcome,
            at=self._monotonic(),
            before=before,
            problem=problem[: bounds.MOST_TEXT],
        )

    def _suppress(self, current: Orders) -> None:
        wanted, tree = current.suppress, self._tree
        if wanted is None:
            return self.release()
        if tree is None:
            return None
        try:
            quota = tree.quota(tree.best_effort)
            usec = table.next_quota(quota.usec, wanted.cpu_milli, wanted.capacity_milli, quota.period_usec)
            self._status.best_effort_usec = quota.usec if usec is None else usec
            if usec is not None:
                tree.set_quota(tree.best_effort, usec)
                self._status.written += 1
                about = {"before_usec": quota.usec, "usec": usec, "left_milli": wanted.cpu_milli}
                changes.info("best-effort pods held to a quota", extra=about)
        except (OSError, ValueError, NotAllowed) as error:
            self._went_wrong(tree.best_effort, error)
        return None

    def _went_wrong(self, path: str, error: Exception) -> None:
        if isinstance(error, OSError) and error.errno in GONE:
            self._status.gone += 1
            return
        self._status.failed += 1
        self._status.problem = f"{path}: {error}"[: status.MOST_TEXT]
        logger.error("not written: %s", error, extra={"cgroup": path})

    def _tell(self, now: float) -> None:
        if self._status_dir is None:
            return
        told = self._status
        told.at, told.pods = now, len(self._asked[0])
        told.layout = "" if self._tree is None else _said(self._tree.layout)
        try:
            status.write(self._status_dir, told)
            body = bounds.encoded(self._told)
            if body != self._told_body:
                bounds.write(self._status_dir, body)
                self._told_body = body
        except OSError as error:
            logger.error("the status cannot be written: %s", error)


def _said(layout: Layout) -> str:
    """How the kubelet's cgroups are named, and where they are."""
    return f"{layout.description}, {layout.class_path(KubeQoS.GUARANTEED)}"


def _asked(current: Orders) -> tuple[tuple[PodOrder, ...], bool]:
    """The parts of the orders that determine the bounds of pods."""
    return current.pods, current.suppress is not None
