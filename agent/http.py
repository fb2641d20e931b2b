"""The agent's endpoints. Every amount says its unit in its name; what is not known is null."""

from dataclasses import dataclass

import msgspec
from fastapi import FastAPI, HTTPException, Response
from fastapi.responses import HTMLResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import BaseModel

from agent.metric_cache import series
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import MetricCache
from agent.metric_cache.series import Usage
from agent.metrics_advisor.advisor import MetricsAdvisor
from agent.predict_server.reclaimable import rounded_up
from agent.predict_server.server import PredictServer
from agent.reporter.report import amount
from agent.reporter.reporter import Reporter
from agent.states_informer.informer import StatesInformer
from shared import durations, errors, web
from shared.clock import Clock
from shared.quantity import Resources
from shared.telemetry import Loops

FRESH_SECONDS = 10  # an older sample is not what is used now


class Amount(BaseModel):
    """An amount of the two resources."""

    cpu_milli: int
    memory_bytes: int


class NodeUsage(BaseModel):
    """What the node uses, and the part of it that no pod accounts for."""

    name: str
    time: str
    source: str
    cpu_milli: int | None
    memory_bytes: int | None
    system: Amount | None
    allocatable: Amount | None


class PodUsage(BaseModel):
    """What a pod uses and what it requested; usage is null while it cannot be read."""

    uid: str
    namespace: str
    name: str
    priority: str
    qos: str
    cpu_milli: int | None
    memory_bytes: int | None
    request: Amount


class Pods(BaseModel):
    time: str
    pods: list[PodUsage]


class Term(BaseModel):
    """One quantity that went into the answer."""

    name: str
    value: int
    unit: str
    source: str
    time: str | None = None


class Explained(BaseModel):
    """The terms of one resource and which of them decided."""

    terms: list[Term]
    bound: str
    result: int


class PredictionAnswer(BaseModel):
    """The prediction of this moment; everything is null until a model is trained."""

    time: str
    model: str
    samples: int
    confidence_percent: int
    requested: Amount
    cold_requested: Amount
    mean: Amount | None
    stdev: Amount | None
    peak: Amount | None
    node_peak: Amount | None
    reclaimable: Amount | None
    reason: str
    resources: dict[str, Explained]
    policy_problem: str


class Histogram(BaseModel):
    """A decaying histogram as VPA and Koordinator write it: weights relative to the heaviest bucket's 10000."""

    reference_time: str
    bucket_weights: dict[int, int]
    total_weight: float


class LastReport(BaseModel):
    """The last report that arrived at the API server, as it was sent."""

    time: str
    reason: str
    status: dict[str, object]


@dataclass(frozen=True)
class Rooms:
    """The running parts the endpoints look into."""

    node_name: str
    clock: Clock
    registry: CollectorRegistry
    loops: Loops
    states: StatesInformer
    cache: MetricCache
    advisor: MetricsAdvisor
    predict_server: PredictServer
    reporter: Reporter

    def usages(self) -> dict[str, Usage]:
        """Every entity's last sample, if it is of the last seconds."""
        return self.cache.aggregate(Aggregation.LAST, FRESH_SECONDS, until=self.advisor.second)

    @property
    def time(self) -> str:
        return durations.timestamp(self.clock.now())


def application(rooms: Rooms) -> FastAPI:
    app = FastAPI(
        title="Headroom agent",
        description=f"Usage and prediction of node {rooms.node_name}.",
        docs_url=None,
        redoc_url=None,
    )
    _add_probes(app, rooms)
    _add_api(app, rooms)
    return app


def _add_probes(app: FastAPI, rooms: Rooms) -> None:
    @app.get("/docs", include_in_schema=False, response_class=HTMLResponse)
    def docs() -> str:
        return web.docs_page("Headroom agent")

    @app.get("/healthz", summary="Alive: 503 when a loop has fallen silent")
    def healthz(response: Response) -> dict[str, dict[str, float]]:
        """Loops that have missed their rounds, with how long they have been silent, in seconds."""
        silent = rooms.loops.overdue()
        response.status_code = 503 if silent else 200
        return {"silent_loops": silent}

    @app.get("/readyz", summary="Whether pods and Node are known and usage is sampled")
    def readyz(response: Response) -> dict[str, bool]:
        checks = {"informers": rooms.states.synced, "sampling": rooms.advisor.sampling.is_set()}
        response.status_code = 200 if all(checks.values()) else 503
        return checks

    @app.get("/metrics", summary="Prometheus metrics", response_class=Response)
    def metrics() -> Response:
        return Response(generate_latest(rooms.registry), media_type=CONTENT_TYPE_LATEST)


def _add_api(app: FastAPI, rooms: Rooms) -> None:
    @app.get("/api/v1/node", summary="The node's usage now")
    def node() -> NodeUsage:
        usages, state = rooms.usages(), rooms.states.node()
        now = usages.get(series.NODE)
        used = amount(now) if now else None
        return NodeUsage(
            name=rooms.node_name,
            time=rooms.time,
            source=rooms.advisor.source,
            cpu_milli=used.cpu_milli if used else None,
            memory_bytes=used.memory_bytes if used else None,
            system=_used(usages.get(series.SYSTEM)),
            allocatable=_amount(state.allocatable if state else None),
        )

    @app.get("/api/v1/pods", summary="Every pod's usage now")
    def pods() -> Pods:
        usages = rooms.usages()
        listed = sorted(rooms.states.pods(), key=lambda pod: pod.pod.metadata.key)
        return Pods(
            time=rooms.time,
            pods=[
                PodUsage(
                    uid=pod.uid,
                    namespace=pod.pod.metadata.namespace,
                    name=pod.pod.metadata.name,
                    priority=pod.priority_class,
                    qos=pod.qos,
                    cpu_milli=used.cpu_milli if used else None,
                    memory_bytes=used.memory_bytes if used else None,
                    request=Amount(**pod.request._asdict()),
                )
                for pod in listed
                for used in [amount(usages[pod.uid]) if pod.uid in usages else None]
            ],
        )

    @app.get("/api/v1/prediction", summary="The predicted peak and what can be reclaimed, with every term")
    def prediction() -> PredictionAnswer:
        found = rooms.predict_server.predict(rooms.states.pods(), rooms.states.node())
        answer, prod = found.reclaimable, found.prod
        explained = answer.explanation if answer else None
        return PredictionAnswer(
            time=durations.timestamp(found.time),
            model=found.model,
            samples=prod.samples if prod else 0,
            confidence_percent=found.confidence_percent,
            requested=Amount(**found.requests.requested._asdict()),
            cold_requested=Amount(**found.requests.cold._asdict()),
            mean=_amount(rounded_up(prod.mean) if prod else None),
            stdev=_amount(rounded_up(prod.stdev) if prod else None),
            peak=_amount(answer.peak if answer else None),
            node_peak=_amount(found.node_peak),
            reclaimable=_amount(answer.result if answer else None),
            reason=explained.reason if explained else "nothing is trained yet",
            resources=msgspec.to_builtins({"cpu": explained.cpu, "memory": explained.memory}) if explained else {},
            policy_problem=found.policy_problem,
        )

    @app.get(
        "/api/v1/histograms/{key}",
        summary="The histograms of one model by resource",
        responses={404: {"description": "There is no such model"}},
    )
    def histograms(key: str) -> dict[str, Histogram]:
        """`key` is a pod's uid, or one of the node's own models: `__node__`, `__node-sys__`, `__node-koord-prod__`."""
        found = rooms.predict_server.histograms(key)
        if found is None:
            raise HTTPException(404, f"key: no model {errors.shown(key)}")
        return {
            resource: Histogram(
                reference_time=durations.timestamp(one.reference_timestamp),
                bucket_weights=one.bucket_weights,
                total_weight=one.total_weight,
            )
            for resource, one in found.items()
        }

    @app.get("/api/v1/report", summary="The last report", responses={404: {"description": "None has arrived yet"}})
    def report() -> LastReport:
        last = rooms.reporter.last
        if last is None:
            raise HTTPException(404, "no report has arrived yet")
        return LastReport(
            time=durations.timestamp(last.time), reason=last.reason, status=msgspec.to_builtins(last.status)
        )


def _amount(resources: Resources | None) -> Amount | None:
    return Amount(**resources._asdict()) if resources is not None else None


def _used(usage: Usage | None) -> Amount | None:
    return _amount(amount(usage)) if usage else None
