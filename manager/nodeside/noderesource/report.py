"""One NodeMetric, checked and in integers.

Text becomes numbers here, once per report, so an invalid NodeMetric is refused here.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias, TypeVar

import msgspec

from manager.nodeside import pressure, promises
from manager.nodeside.noderesource import prod_first
from manager.nodeside.noderesource.prod_first import ProdWaiting
from manager.nodeside.pressure import NodePressure
from manager.nodeside.promises import KeptPromise, KeptPromises
from shared import durations, names, quantity
from shared.api.core import Quantities
from shared.api.nodemetric import (
    CpuAndMemory,
    NodeMetric,
    NodeMetricInfo,
    PodMetricInfo,
    Prediction,
    ReclaimableMetric,
    ResourceMap,
)
from shared.api.nodemetric_spec import NodeMetricSpec
from shared.errors import InvalidInput
from shared.names import PriorityClass
from shared.quantity import INT64_MAX, Resources

logger = logging.getLogger(__name__)


# More pods than any node runs, although an API object can list them.
MAX_LISTED = 4096
NEGATIVE = "a usage cannot be negative"
BEYOND = "must be less than 2^63"
MAX_RAW_BYTES = 1 << 14  # of what is seldom needed: fifty aggregates are a tenth of it

_BORROWING_CLASSES = frozenset(PriorityClass) - names.LENDING_CLASSES
_CLASSES: dict[str, str] = {each.value: each.value for each in PriorityClass}


# cpu and memory, each on its own; None is unreported.
PartialUsage: TypeAlias = tuple[int | None, int | None]


def complete(usage: PartialUsage) -> Resources | None:
    """None unless both resources are reported."""
    cpu, memory = usage
    return None if cpu is None or memory is None else Resources(cpu, memory)


class ReportedUsage(msgspec.Struct, frozen=True, gc=False):
    """The reported usage of a pod or a host application, each resource on its own, and its class; "" is none."""

    priority_class: str
    cpu_milli: int | None
    memory_bytes: int | None

    @property
    def usage(self) -> Resources:
        """An unreported resource counts as unused: where that is not the safe side, use `parts`."""
        return Resources(self.cpu_milli or 0, self.memory_bytes or 0)

    @property
    def parts(self) -> PartialUsage:
        return self.cpu_milli, self.memory_bytes


_SPEC = msgspec.json.Decoder(NodeMetricSpec | None)
_MALFORMED = (ValueError, RecursionError)  # the errors of decoding

_NONE: Mapping[str, ReportedUsage] = {}
_NO_WAITS: Mapping[str, ProdWaiting] = {}
_UNUSED = CpuAndMemory()
_NO_INFO = NodeMetricInfo()
_NO_PREDICTION = Prediction()

T = TypeVar("T")


class NodeReport(msgspec.Struct, frozen=True):
    """One NodeMetric. `None` is unreported; times are Unix seconds.

    `reason` is the agent's for reporting. `pods` are by "namespace/name"; several `host_applications` may share one
    name. `system_usage` and `peak` are cpu and memory, each on its own. The peak is prod's, of what `prod_usage`
    is: all usage but that of pods of Mid, Batch and Free. `node_peak` is that of all workloads, and
    `history_percent` is how much of the cold start their history covers. `kept` may be refused on its own; `prior`
    is the start of the margins. `aggregated` are the node's aggregated usages as JSON, and `histograms` tell how
    often prod used how much, as JSON too: both are seldom needed. `pressure` is present while a threshold of use is
    reached; `prod_waits` are those of Prod pods by resource. With a `problem`, the whole status is ignored. An
    unreadable `spec` counts as empty, and `unread_spec` is its raw form.
    """

    name: str
    uid: str
    resource_version: str
    spec: NodeMetricSpec
    update_time: float | None = None
    updated: str | None = None
    reason: str = ""
    usage: Resources | None = None
    system_usage: PartialUsage = (None, None)
    host_applications: tuple[ReportedUsage, ...] = ()
    pods: Mapping[str, ReportedUsage] = _NONE
    prod_usage: Resources | None = None
    peak: PartialUsage = (None, None)
    reclaimable: Resources | None = None
    node_peak: Resources | None = None
    model: str = ""
    history_percent: int = 0
    kept: KeptPromises = promises.NOTHING_KEPT
    promises_problem: InvalidInput | None = None
    pressure: NodePressure | None = None
    pressure_problem: InvalidInput | None = None
    prod_waits: Mapping[str, ProdWaiting] = _NO_WAITS
    prior: str = ""
    forgotten: str = ""
    aggregated: bytes = b""
    histograms: bytes = b""
    problem: InvalidInput | None = None
    unread_spec: Mapping[str, object] | None = None

    @property
    def promises(self) -> tuple[KeptPromise, ...]:
        return self.kept.promises


def read(metric: NodeMetric) -> NodeReport:
    """The report; an invalid status sets its `problem`."""
    spec, unread = _spec(metric)
    try:
        return _read(metric, spec, unread)
    except InvalidInput as problem:
        meta, kept = metric.metadata, _released(problem)
        return NodeReport(meta.name, meta.uid, meta.resource_version, spec, problem=kept, unread_spec=unread)


def _read(metric: NodeMetric, spec: NodeMetricSpec, unread: Mapping[str, object] | None) -> NodeReport:
    meta, status = metric.metadata, metric.status
    source, info, said = f"NodeMetric {meta.name}", status.node_metric or _NO_INFO, status.prediction or _NO_PREDICTION
    usage = _complete(info.node_usage, source, "status.nodeMetric.nodeUsage")
    pods = _pods(metric, source)
    kept, promises_problem = _read_apart(promises.read, status.prediction, source, promises.NOTHING_KEPT)
    pressed, pressure_problem = _read_apart(pressure.read, said.pressure, source, None)
    if pressure_problem is not None:
        logger.error("reported pressure rejected: %s", pressure_problem)
    waits, waits_problem = _read_apart(prod_first.read, status.interference, source, _NO_WAITS)
    if waits_problem is not None:
        logger.error("reported waits of Prod pods rejected: %s", waits_problem)
    return NodeReport(
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        spec=spec,
        update_time=_instant(status.update_time, source=source, field="status.updateTime"),
        updated=status.update_time,
        reason=said.report_reason,
        usage=usage,
        system_usage=_partial(info.system_usage, source, "status.nodeMetric.systemUsage"),
        host_applications=_host_applications(metric, source),
        pods=pods,
        prod_usage=None if usage is None else _prod_usage(usage, pods),
        peak=_peak(status.prod_peak_metric, source),
        reclaimable=_reclaimable(status.prod_reclaimable_metric, source),
        node_peak=_node_peak(said, source),
        model=said.model,
        history_percent=said.known_percent,
        kept=kept,
        promises_problem=promises_problem,
        pressure=pressed,
        pressure_problem=pressure_problem,
        prod_waits=waits,
        prior=promises.prior(said.prior),
        forgotten=promises.forgotten(said.last_forgotten),
        aggregated=_raw(info.aggregated_node_usages),
        histograms=_raw(said.usage_histograms),
        unread_spec=unread,
    )


def _read_apart(read: Callable[..., T], part: object, source: str, nothing: T) -> tuple[T, InvalidInput | None]:
    """A part that no offer depends on, if it is there: an error in it does not invalidate the rest."""
    if part is None:
        return nothing, None
    try:
        return read(part, source=source), None
    except InvalidInput as problem:
        return nothing, _released(problem)


def _released(problem: InvalidInput) -> InvalidInput:
    """It would otherwise keep its frames, and with them the whole object."""
    problem.__traceback__ = problem.__cause__ = problem.__context__ = None
    return problem


def _spec(metric: NodeMetric) -> tuple[NodeMetricSpec, Mapping[str, object] | None]:
    """The spec; an unreadable one is empty, and is returned raw as well."""
    text = bytes(metric.spec)
    try:
        return _decoded(text), None
    except _MALFORMED as error:
        logger.error(
            "the NodeMetric's spec is invalid and counts as empty: %s", error, extra={"node": metric.metadata.name}
        )
    try:
        return NodeMetricSpec(), msgspec.json.decode(text, type=dict[str, object])
    except _MALFORMED:
        return NodeMetricSpec(), {}


def _pods(metric: NodeMetric, source: str) -> Mapping[str, ReportedUsage]:
    listed = metric.status.pods_metric or ()
    _require_few(len(listed), source, "status.podsMetric")
    # Most of the work on a report happens here, so amounts are parsed in bulk.
    used = [_UNUSED if one.pod_usage is None else one.pod_usage.resources or _UNUSED for one in listed]
    try:
        cpus = [quantity.milli(0 if each.cpu is None else each.cpu) for each in used]
        memories = quantity.wholes([0 if each.memory is None else each.memory for each in used])
    except ValueError:  # a QuantityError, or more digits than Python reads
        raise _refused_pod(listed, used, source) from None
    if listed and not 0 <= min(*cpus, *memories) <= max(*cpus, *memories) < INT64_MAX:
        raise _refused_pod(listed, used, source)
    class_of = _CLASSES.get
    return {
        f"{one.namespace}/{one.name}": ReportedUsage(
            class_of(one.priority, one.priority),
            None if each.cpu is None else cpu,
            None if each.memory is None else memory,
        )
        for one, each, cpu, memory in zip(listed, used, cpus, memories, strict=True)
    }


def _prod_usage(usage: Resources, pods: Mapping[str, ReportedUsage]) -> Resources:
    """The usage that the agent's models learn from, of the same moment as the report.

    Usage that is not reported of a borrowing pod counts as prod's.
    """
    lent = quantity.total([each.usage for each in pods.values() if each.priority_class in _BORROWING_CLASSES])
    return usage.minus(lent).floored()


def _host_applications(metric: NodeMetric, source: str) -> tuple[ReportedUsage, ...]:
    listed = metric.status.host_application_metric
    if not listed:
        return ()
    _require_few(len(listed), source, "status.hostApplicationMetric")
    field = "status.hostApplicationMetric[%s].usage"
    return tuple(ReportedUsage(one.priority, *_partial(one.usage, source, field, one.name)) for one in listed)


def _require_few(count: int, source: str, field: str) -> None:
    if count > MAX_LISTED:
        problem = f"no node runs more than {MAX_LISTED} of them"
        raise InvalidInput(source=source, field=field, value=count, problem=problem)


def _complete(usage: ResourceMap | None, source: str, field: str) -> Resources | None:
    """A usage that lacks one resource counts as unknown."""
    return complete(_partial(usage, source, field))


def _partial(usage: ResourceMap | None, source: str, field: str, of: str = "") -> PartialUsage:
    """cpu and memory of a usage, each None where it is not reported."""
    listed = {} if usage is None or not usage.resources else usage.resources
    cpu, memory = _amounts(usage, source, field, of)
    return cpu if names.CPU in listed else None, memory if names.MEMORY in listed else None


def _amounts(listed: ResourceMap | None, source: str, field: str, of: str = "") -> tuple[int, int]:
    """cpu and memory of a usage. A negative usage is invalid: it would be lent to others."""
    resources = None if listed is None else listed.resources
    if not resources:
        return 0, 0
    try:
        cpu, memory = quantity.milli(resources.get(names.CPU, "0")), quantity.whole(resources.get(names.MEMORY, "0"))
    except ValueError as error:  # a QuantityError, or more digits than Python reads
        raise _refused(resources, source, field, of, str(error)) from error
    if cpu < 0 or memory < 0:
        raise _refused(resources, source, field, of, NEGATIVE)
    if max(cpu, memory) >= INT64_MAX:
        raise _refused(resources, source, field, of, BEYOND)
    return cpu, memory


def _peak(metric: ReclaimableMetric | None, source: str) -> PartialUsage:
    return _partial(None if metric is None else metric.resource, source, "status.prodPeakMetric.resource")


def _reclaimable(metric: ReclaimableMetric | None, source: str) -> Resources | None:
    """Koordinator's agents may report negative amounts, which count as 0."""
    if metric is None or metric.resource is None:
        return None
    listed = metric.resource.resources or {}
    try:
        amount = Resources.parse(listed)
        if max(map(abs, amount)) >= INT64_MAX:
            raise ValueError(BEYOND)
    except ValueError as error:  # a QuantityError, or more digits than Python reads
        raise _refused(listed, source, "status.prodReclaimableMetric.resource", "", str(error)) from error
    return amount


def _node_peak(prediction: Prediction, source: str) -> Resources | None:
    return _complete(ResourceMap(prediction.node_peak), source, "status.prediction.nodePeak")


def _raw(seldom: msgspec.Raw) -> bytes:
    found = bytes(seldom)
    return found if len(found) <= MAX_RAW_BYTES else b""


def _refused_pod(listed: Iterable[PodMetricInfo], used: Iterable[CpuAndMemory], source: str) -> InvalidInput:
    """The error of the first pod with an invalid usage."""
    for one, each in zip(listed, used, strict=True):
        field, given = f"status.podsMetric[{one.namespace}/{one.name}].podUsage", _listed(each)
        try:
            _amounts(ResourceMap(given), source, field)
        except InvalidInput as problem:
            return problem
    raise AssertionError("one of the pods was refused")


def _listed(usage: CpuAndMemory) -> Quantities:
    return {name: amount for name, amount in msgspec.to_builtins(usage).items() if amount is not None}


def _refused(resources: Quantities, source: str, field: str, of: str, problem: str) -> InvalidInput:
    native = {name: resources[name] for name in (names.CPU, names.MEMORY) if name in resources}
    return InvalidInput(source=source, field=field % of if of else field, value=native, problem=problem)


def _instant(text: str | None, *, source: str, field: str) -> float | None:
    if text is None:
        return None
    try:
        return durations.instant(text)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(source=source, field=field, value=text, problem=str(error)) from error


@lru_cache(maxsize=64)
def _decoded(text: bytes) -> NodeMetricSpec:
    """One shared spec for all equal ones: most nodes have the same."""
    return (_SPEC.decode(text) if text else None) or NodeMetricSpec()
