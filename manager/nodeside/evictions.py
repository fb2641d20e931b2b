"""All evictions of a manager: for pressure, and for offers that have shrunk."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry

from manager.nodeside.caches import Caches
from manager.nodeside.eviction.asking import Asker
from manager.nodeside.eviction.evictor import Evictor
from manager.nodeside.eviction.metrics import EvictionCounters, PressureCounters, ShortfallCollector
from manager.nodeside.eviction.reliever import Pressed, Reliever
from manager.nodeside.eviction.tracker import Tracker
from manager.settings import ManagerSettings
from shared.clock import Clock

INTERVAL_SECONDS = 1.0


class Evictions:
    """One thread calls `round`, so that all evictions share one rate. In a dry run none is asked for."""

    def __init__(
        self,
        settings: ManagerSettings,
        caches: Caches,
        tracker: Tracker,
        asker: Asker,
        clock: Clock,
        registry: CollectorRegistry,
        *,
        is_settled: Callable[[str], bool],
        is_leader: Callable[[], bool],
    ) -> None:
        self._evictor = None
        if not settings.dry_run:
            self._evictor = Evictor(
                asker,
                tracker,
                clock,
                node=caches.node,
                pods=caches.pods,
                is_settled=is_settled,
                is_leader=is_leader,
                counters=EvictionCounters(registry),
            )
        self._reliever = Reliever(
            asker,
            clock,
            reports=caches.reports,
            pods=caches.pods,
            thresholds=caches.thresholds,
            may_act=lambda: not settings.dry_run and is_leader() and not caches.unsynced(),
            counters=PressureCounters(registry, lambda: len(self._reliever.all())),
            per_minute=settings.evictions_per_minute,
        )
        registry.register(ShortfallCollector(tracker.all, clock.monotonic))

    def pressed(self, node: str) -> Pressed | None:
        """The pressure on a node, if there is any."""
        return self._reliever.of(node)

    def round(self) -> None:
        """Evicts what may be evicted now; pressure cannot wait."""
        self._reliever.round()
        if self._evictor is not None:
            self._evictor.round()
