"""The counters of the API client."""

import weakref

from prometheus_client import CollectorRegistry, Counter


class Metrics:
    """The counters of one registry; with `None` they count without being exposed."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.requests = Counter(
            "headroom_kube_requests",
            "Requests to the API server by their answer's status code",
            ["verb", "code"],
            registry=registry,
        )
        self.watch_restarts = Counter(
            "headroom_kube_watch_restarts",
            "Watches that ended and were started again",
            ["resource", "reason"],
            registry=registry,
        )
        self.refused_objects = Counter(
            "headroom_kube_refused_objects",
            "Versions of objects that could not be read and were left out",
            ["resource"],
            registry=registry,
        )
        self.dropped_events = Counter(
            "headroom_kube_dropped_events",
            "Kubernetes Events not written",
            ["reason"],
            registry=registry,
        )


_BY_REGISTRY: weakref.WeakKeyDictionary[CollectorRegistry, Metrics] = weakref.WeakKeyDictionary()


def of(registry: CollectorRegistry | None) -> Metrics:
    """The counters of `registry`; all clients of a process share them, because a registry takes a name once."""
    if registry is None:
        return Metrics()
    if registry not in _BY_REGISTRY:
        _BY_REGISTRY[registry] = Metrics(registry)
    return _BY_REGISTRY[registry]
