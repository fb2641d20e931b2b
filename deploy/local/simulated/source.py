"""The measurements of a simulated node: each running pod follows its curve or its series of a trace."""

import logging
import zlib
from collections.abc import Sequence

from agent.metric_cache.series import Kind, Metric, SeriesKey
from agent.metrics_advisor.source import Sample, Usage
from deploy.local.simulated import curves
from deploy.local.simulated.curves import Curve, UsedShare
from deploy.local.simulated.traces import Series
from shared import names, quantity
from shared.api import pods
from shared.api.core import Pod
from shared.clock import Clock
from shared.errors import InvalidInput
from shared.quantity import QuantityError, Resources

logger = logging.getLogger(__name__)

# The basis for a pod without requests.
UNREQUESTED = Resources(cpu_milli=100, memory_bytes=128 << 20)

# The operating system's own usage, as shares of the node.
SYSTEM_SHARE = UsedShare(cpu=0.02, memory=0.03)


def curve_of(pod: Pod) -> tuple[Curve, int]:
    """The pod's curve and seed; the default is a steady curve. Raises InvalidInput."""
    text = pod.metadata.annotation(names.ANNOTATION_USAGE_CURVE) or Curve.STEADY.value
    name, _, seed = text.partition(":")
    if name not in tuple(Curve) or (seed and not seed.isdigit()):
        raise InvalidInput(
            source=f"pod {pod.metadata.key}",
            field=names.ANNOTATION_USAGE_CURVE,
            value=text,
            problem=f"expected CURVE or CURVE:SEED with a curve of {', '.join(Curve)}",
        )
    return Curve(name), int(seed) if seed else zlib.crc32(pod.metadata.uid.encode())


def base_of(pod: Pod) -> Resources:
    """The basis of the pod's shares: its requests, native or Mid. Raises QuantityError."""
    asked = pods.requests(pod)
    return Resources(
        asked.get(names.CPU) or asked.get(names.MID_CPU) or UNREQUESTED.cpu_milli,
        asked.get(names.MEMORY) or asked.get(names.MID_MEMORY) or UNREQUESTED.memory_bytes,
    )


class SimulatedSource:
    """One node. A pod's time starts with the pod, and runs `speed` times as fast as the clock."""

    description = "simulated"

    def __init__(self, name: str, size: Resources, clock: Clock, *, speed: float, trace: Sequence[Series] = ()) -> None:
        self._seed = zlib.crc32(name.encode())
        self._size = size
        self._clock = clock
        self._speed = speed
        self._trace = trace
        self._refused: set[str] = set()

    def sample(self, pods: Sequence[Pod]) -> Sample:
        """Current usage; a pod with an invalid annotation or invalid requests has none."""
        now = self._clock.now()
        usages: dict[str, Usage] = {}
        for pod in pods:
            if pod.status.phase == "Running":
                try:
                    usages[pod.metadata.uid] = self._usage(pod, now)
                except (InvalidInput, QuantityError) as error:
                    self._refuse(pod, error)
        total = self._system(now)
        for usage in usages.values():
            total = total.plus(usage)
        return Sample(self._bounded(total), usages, readings=self._waits(total))

    def _waits(self, wanted: Usage) -> dict[SeriesKey, float]:
        """Pods wait for the CPU that they want beyond the node's, Prod pods as long as all others: weights are not
        simulated.
        """
        cores = self._size.cpu_milli / quantity.MILLI_PER_CORE
        share = max(0.0, 1 - cores / wanted.cpu_cores) if wanted.cpu_cores else 0.0
        values = {Metric.PROD_CPU_WAIT: share, Metric.PROD_MEMORY_WAIT: 0.0, Metric.PROD_THROTTLED_PODS: 0.0}
        return {SeriesKey(Kind.NODE, "", metric): value for metric, value in values.items()}

    def _usage(self, pod: Pod, now: float) -> Usage:
        curve, seed = curve_of(pod)
        seconds = max(0.0, now - pod.metadata.created_at) * self._speed
        share = curves.share(curve, seed, seconds)
        if self._trace:
            share = UsedShare(self._trace[seed % len(self._trace)].at(seconds), share.memory)
        base = base_of(pod)
        return Usage(base.cpu_milli / quantity.MILLI_PER_CORE * share.cpu, base.memory_bytes * share.memory)

    def _system(self, now: float) -> Usage:
        wobble = 0.8 + 0.4 * curves.uniform(self._seed, int(now))
        cores = self._size.cpu_milli / quantity.MILLI_PER_CORE
        return Usage(cores * SYSTEM_SHARE.cpu * wobble, self._size.memory_bytes * SYSTEM_SHARE.memory)

    def _bounded(self, usage: Usage) -> Usage:
        """Limits the usage to the node's size."""
        return Usage(
            min(usage.cpu_cores, self._size.cpu_milli / quantity.MILLI_PER_CORE),
            min(usage.memory_bytes, self._size.memory_bytes),
        )

    def _refuse(self, pod: Pod, error: Exception) -> None:
        if pod.metadata.uid not in self._refused:
            self._refused.add(pod.metadata.uid)
            logger.warning("pod without usage: %s", error, extra={"pod": pod.metadata.key})
