"""Endpoints that machines poll every few seconds: health, readiness, metrics."""

from typing import NamedTuple

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from agent.http.rooms import Rooms

JSON = "application/json"


class ProbeAnswer(NamedTuple):
    status: int
    media_type: str
    body: bytes


def healthz(rooms: Rooms) -> ProbeAnswer:
    """Loops that have missed their rounds, with the time since their last one, in seconds."""
    silent = rooms.loops.overdue()
    return ProbeAnswer(503 if silent else 200, JSON, msgspec.json.encode({"silent_loops": silent}))


def readyz(rooms: Rooms) -> ProbeAnswer:
    """Whether pods and Node are known, and a first sample is stored."""
    checks = {"informers": rooms.states.synced, "sampling": rooms.advisor.sampling.is_set()}
    return ProbeAnswer(200 if all(checks.values()) else 503, JSON, msgspec.json.encode(checks))


def metrics(rooms: Rooms) -> ProbeAnswer:
    """All metrics, in Prometheus' text format."""
    return ProbeAnswer(200, CONTENT_TYPE_LATEST, generate_latest(rooms.registry))
