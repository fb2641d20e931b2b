"""All evictions of a manager: for pressure, and for offers that have shrunk."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry

from manager.nodeside.caches import Caches
from manager.nodeside.eviction.eviction_client import EvictionClient
from manager.nodeside.eviction.evictor import Evictor
from manager.nodeside.eviction.metrics import EvictionCounters, PressureCounters, ShortfallCollector
from manager.nodeside.eviction.reliever import Pressed, Reliever
from manager.nodeside.eviction.tracker import Tracker
from manager.settings import ManagerSettings

INTERVAL_SECONDS = 1.0


class Evictions:
    """One thread calls `run_once`, so that all evictions share one rate. In a dry run none is asked for."""

    def __init__(
        self,
        settings: ManagerSettings,
        caches: Caches,
        tracker: Tracker,
        evictions: EvictionClient,
        registry: CollectorRegistry,
        *,
        is_settled: Callable[[str], bool],
    ) -> None:
        self._evictor = None
        if not settings.dry_run:
            self._evictor = Evictor(evictions, tracker, caches, is_settled, EvictionCounters(registry))
        self._reliever = Reliever(
            evictions,
            caches,
            lambda: not settings.dry_run and evictions.is_leader() and not caches.unsynced(),
            PressureCounters(registry, lambda: len(self._reliever.all())),
        )
        registry.register(ShortfallCollector(tracker.all, evictions.clock.monotonic))

    def pressed(self, node: str) -> Pressed | None:
        """The pressure on a node, if there is any."""
        return self._reliever.pressure_on(node)

    def run_once(self) -> None:
        """Evicts what may be evicted now; pressure cannot wait."""
        self._reliever.run_once()
        if self._evictor is not None:
            self._evictor.run_once()
