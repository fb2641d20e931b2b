"""NodeMetric, `slo.koordinator.sh/v1alpha1`: the one object where agent and manager meet.

Upstream's fields keep upstream's names and meaning, so that either side can be replaced by Koordinator's own. Our
additions are `spec.predictPolicy`, `spec.predictionPrior`, `spec.midPolicy`, `spec.resourceUsedThresholdWithBE`,
`status.prediction` and `status.interference`.
"""

import enum

import msgspec

from shared.api.core import Condition, Quantities
from shared.api.meta import ObjectMeta, Wire, prepared
from shared.api.nodemetric_spec import WireTail
from shared.quantity import Resources

API_VERSION = "slo.koordinator.sh/v1alpha1"
KIND = "NodeMetric"


class ResourceMap(Wire, frozen=True):
    """Quantities by resource name."""

    resources: Quantities | None = None
    devices: tuple[dict[str, object], ...] | None = None

    @classmethod
    def of(cls, amount: Resources) -> "ResourceMap":
        return cls(resources=dict(amount.quantities()))

    @property
    def amount(self) -> Resources:
        """cpu and memory, 0 where absent. Raises QuantityError."""
        return Resources.parse(self.resources or {})


class NodeMetricInfo(Wire, frozen=True):
    node_usage: ResourceMap | None = None
    system_usage: ResourceMap | None = None
    aggregated_node_usages: msgspec.Raw = msgspec.Raw()  # undecoded; see AggregatedUsage


class CpuAndMemory(Wire, frozen=True, gc=False):
    """The part of a resource list that the product computes with; None is unreported."""

    cpu: str | int | float | None = None
    memory: str | int | float | None = None


class PodUsage(Wire, frozen=True):
    resources: CpuAndMemory | None = None


class PodMetricInfo(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    pod_usage: PodUsage | None = None
    priority: str = ""


class HostApplicationMetricInfo(Wire, frozen=True):
    name: str = ""
    usage: ResourceMap | None = None
    priority: str = ""
    qos: str = ""


class ReclaimableMetric(Wire, frozen=True):
    resource: ResourceMap | None = None


class SurpriseCause(enum.StrEnum):
    """Why a promise was broken, as far as a model knows."""

    UNKNOWN = ""
    CORRELATED = "Correlated"  # pods peak together
    GROWING = "Growing"  # the node used more from day to day
    BURSTING = "Bursting"  # much more than ever before, for a short time


class PromiseDebt(Wire, frozen=True):
    """What broken promises cost: surprises in four weeks, each of which broke all open promises, the last one and its
    likely cause; the broken promises that are not made up for (a decimal), what is lent less because of them, and when
    it is lent again if nothing else breaks.
    """

    surprises: int = 0
    last_surprise_time: str | None = None
    cause: str | None = None
    broken_promises: str = "0"
    withheld: str | None = None
    paid_time: str | None = None


class Promise(Wire, frozen=True):
    """The prod peak for one horizon, and how often such promises held in the last four weeks; decimals.

    Violations are in percent of `outcomes`, severity is the mean excess in percent of the actual peak, lent is the mean
    share of requests above the promise, and coverage is the share of hours with known outcomes. The note says what
    the target cannot mean on one node within that time.
    """

    horizon_seconds: int = 0
    peak: Quantities | None = None
    target_violation_percent: str | None = None
    outcomes: int = 0
    coverage_percent: str | None = None
    cpu_violation_percent: str | None = None
    memory_violation_percent: str | None = None
    cpu_severity_percent: str | None = None
    memory_severity_percent: str | None = None
    cpu_lent_percent: str | None = None
    memory_lent_percent: str | None = None
    cpu_tail: WireTail | None = None
    memory_tail: WireTail | None = None
    target_note: str | None = None
    cpu_debt: PromiseDebt | None = None
    memory_debt: PromiseDebt | None = None


class Withdrawal(Wire, frozen=True):
    """How much lent capacity was taken back per day, on average over that window; decimals."""

    window_seconds: int = 0
    cpu_percent_per_day: str | None = None
    memory_percent_per_day: str | None = None


MOST_SHADOWS = 8


class Shadow(Wire, frozen=True):
    """A model that is not active: what it would have lent for the first horizon, and how often it was wrong."""

    model: str = ""
    outcomes: int = 0
    cpu_violation_percent: str | None = None
    memory_violation_percent: str | None = None
    cpu_lent_percent: str | None = None
    memory_lent_percent: str | None = None


class PriorInUse(Wire, frozen=True):
    """What margins start from: "built-in", or "fleet" and the number of nodes behind it."""

    source: str = ""
    nodes: int = 0


class LastForgotten(Wire, frozen=True):
    """The last requested forgetting: "node" or a workload's "namespace/Kind/name", and up to when (RFC 3339)."""

    of: str = ""
    until: str = ""


class PressedPod(Wire, frozen=True):
    """The usage of a pod of Mid or Batch, and its requests of the tier's resources."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    usage: Quantities | None = None
    held: Quantities | None = None


class Pressure(Wire, frozen=True):
    """What the agent saw when a threshold was reached: the node as a whole, and its pods of Mid and Batch.

    `resources` are the ones that reached it. Usage of cpu is the mean of the last ten seconds, usage of memory the
    current value. `tiers_cpu_*` cover the pods of Mid and Batch together: their requests, their usage, and their real
    limit, which is what the rest of the node leaves. Stalls are in percent of the last ten seconds, as decimals.
    """

    resources: tuple[str, ...] = ()
    capacity: Quantities | None = None
    usage: Quantities | None = None
    tiers_cpu_request: str = msgspec.field(default="0", name="tiersCPURequest")
    tiers_cpu_usage: str = msgspec.field(default="0", name="tiersCPUUsage")
    tiers_cpu_limit: str = msgspec.field(default="0", name="tiersCPULimit")
    cpu_stall_percent: str | None = None
    memory_stall_percent: str | None = None
    pods: tuple[PressedPod, ...] | None = None


class ProdWait(Wire, frozen=True):
    """The share of their time that Prod pods waited for a resource, in percent as decimals.

    `baseline_percent` is the same without pods of Mid and Batch on the node, absent until learned. Prod is slowed from
    `since` on, absent while it is not; at `last_time` it last waited too long (RFC 3339). `slowed_percent` is the
    share of a day in which Prod was slowed, in percent as decimals; a day ago counts 37 % of now, absent while it is 0.
    """

    resource: str = ""
    wait_percent: str | None = None
    baseline_percent: str | None = None
    since: str | None = None
    last_time: str | None = None
    slowed_percent: str | None = None


class Interference(Wire, frozen=True):
    """How Prod pods fare on the node: absent where the kernel or cgroup v1 does not tell.

    `throttled_pods` are Prod pods at their own CPU limits, which do not count. Stealing is the hypervisor's; stalls for
    disks only inform.
    """

    waits: tuple[ProdWait, ...] = ()
    throttled_pods: int = 0
    steal_percent: str | None = None
    io_stall_percent: str | None = None


MOST_BARS = 20


class UsageHistogram(Wire, frozen=True):
    """How often Prod and the system used how much of a resource; older samples weigh less. In milli-cores or bytes.

    `shares[i]`, in ten-thousandths of the weight, lie from `bounds[i]` to `bounds[i + 1]`.
    """

    resource: str = ""
    bounds: tuple[int, ...] = ()
    shares: tuple[int, ...] = ()
    p50: int = 0
    p95: int = 0
    p98: int = 0
    p99: int = 0


class _Prediction(Wire, frozen=True):
    """The basis of the reported peak; `mean`, `stdev` and `peak` describe the prod usage in cores and bytes.

    `history_percent` is how much of the cold start the node's history covers; `known_percent` reads it from agents of
    any version. The N-sigma peaks are present for every model; the target only for models that have one.
    """

    model: str = ""
    mean: Quantities | None = None
    stdev: Quantities | None = None
    peak: Quantities | None = None
    node_peak: Quantities | None = None
    n_sigma_v1_peak: Quantities | None = msgspec.field(default=None, name="nSigmaV1Peak")
    n_sigma_v2_peak: Quantities | None = msgspec.field(default=None, name="nSigmaV2Peak")
    promises: tuple[Promise, ...] | None = None
    withdrawals: tuple[Withdrawal, ...] | None = None
    shadows: tuple[Shadow, ...] | None = None
    prior: PriorInUse | None = None
    last_forgotten: LastForgotten | None = None
    samples: int = 0
    history_percent: int | None = None
    confidence_percent: int = 0  # its former name, from agents that do not know the new one
    report_reason: str = ""
    conditions: tuple[Condition, ...] | None = None
    pressure: Pressure | None = None

    @property
    def known_percent(self) -> int:
        """The history percentage under either name."""
        return self.confidence_percent if self.history_percent is None else self.history_percent


class Prediction(_Prediction, frozen=True):
    """The fields the manager acts on."""

    usage_histograms: msgspec.Raw = msgspec.Raw()  # undecoded; see UsageHistogram


class PredictionReport(_Prediction, frozen=True):
    """All of it, as an agent writes it."""

    usage_histograms: tuple[UsageHistogram, ...] | None = None


class _Status(Wire, frozen=True):
    update_time: str | None = None
    host_application_metric: tuple[HostApplicationMetricInfo, ...] | None = None
    prod_reclaimable_metric: ReclaimableMetric | None = None
    prod_peak_metric: ReclaimableMetric | None = None
    interference: Interference | None = None


class NodeMetricStatus(_Status, frozen=True):
    """The fields the manager acts on. A full report takes half as long again to decode, and any field could
    spoil it.
    """

    prediction: Prediction | None = None
    node_metric: NodeMetricInfo | None = None
    pods_metric: tuple[PodMetricInfo, ...] | None = None


class AggregatedUsage(Wire, frozen=True):
    """Usage over the last `duration` by aggregate (avg, p50, p90, p95, p99); empty maps for too short a history."""

    usage: dict[str, ResourceMap] | None = None
    duration: str = ""


class NumaUsage(Wire, frozen=True):
    numa_node_id: int = msgspec.field(name="numaNodeID")
    node_usage: ResourceMap | None = None
    system_usage: ResourceMap | None = None


class NodeMetricInfoReport(Wire, frozen=True):
    node_usage: ResourceMap | None = None
    system_usage: ResourceMap | None = None
    aggregated_node_usages: tuple[AggregatedUsage, ...] | None = None
    aggregated_system_usages: tuple[AggregatedUsage, ...] | None = None
    numa_usages: tuple[NumaUsage, ...] | None = None


class PodExtensions(Wire, frozen=True):
    """What our agents put into a pod's `extensions`: the peak of the `percentile` model, with its margin."""

    predicted_peak: Quantities | None = None


class PodMetricInfoReport(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    pod_usage: ResourceMap | None = None
    priority: str = ""
    qos: str = ""
    extensions: dict[str, object] | None = None  # ours is PodExtensions


class NodeMetricReport(_Status, frozen=True):
    """The whole status, as an agent writes it."""

    prediction: PredictionReport | None = None
    node_metric: NodeMetricInfoReport | None = None
    pods_metric: tuple[PodMetricInfoReport, ...] | None = None


@prepared
class NodeMetric(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw()  # undecoded, so that it cannot spoil the status; see NodeMetricSpec
    status: NodeMetricStatus = NodeMetricStatus()
