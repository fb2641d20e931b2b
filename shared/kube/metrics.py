"""The counters of the API client."""

import weakref

from prometheus_client import CollectorRegistry

from shared.metric_families import CounterFamily

_REQUESTS = CounterFamily(
    "headroom_kube_requests",
    "Requests to the API server, by status code.",
    ("verb", "code"),
)
_WATCH_RESTARTS = CounterFamily(
    "headroom_kube_watch_restarts",
    "Watches that ended and were restarted.",
    ("resource", "reason"),
)
_REFUSED_OBJECTS = CounterFamily(
    "headroom_kube_refused_objects", "Versions of objects that could not be decoded and were ignored.", ("resource",)
)
_DROPPED_EVENTS = CounterFamily("headroom_kube_dropped_events", "Kubernetes Events that were not written.", ("reason",))


class Metrics:
    """The counters of one registry; with `None` they count without being exposed."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.requests = _REQUESTS.register(registry)
        self.watch_restarts = _WATCH_RESTARTS.register(registry)
        self.refused_objects = _REFUSED_OBJECTS.register(registry)
        self.dropped_events = _DROPPED_EVENTS.register(registry)


_BY_REGISTRY: weakref.WeakKeyDictionary[CollectorRegistry, Metrics] = weakref.WeakKeyDictionary()


def of(registry: CollectorRegistry | None) -> Metrics:
    """The counters of `registry`; all clients of a process share them, because a registry takes a name once."""
    if registry is None:
        return Metrics()
    if registry not in _BY_REGISTRY:
        _BY_REGISTRY[registry] = Metrics(registry)
    return _BY_REGISTRY[registry]
