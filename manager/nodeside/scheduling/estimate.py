"""The expected usage of a pod before any measurement (facts of upstream's default estimator)."""

from manager.nodeside.scheduling.args import LoadAwareArgs
from manager.pods import NOTHING, Estimation, PodRecord
from shared.names import LENDING_CLASSES, PriorityClass
from shared.quantity import Resources

# The assumed request of a pod without requests and limits.
DEFAULT_REQUEST = Resources(250, 200 << 20)

_AS_IT_IS = Estimation()


def estimate(pod: PodRecord, args: LoadAwareArgs) -> Resources:
    """A share of the pod's requests, or of its limit if that is more, and never more than the limit.

    Mid and Batch pods are estimated by the resources of their tier. Pods of class koord-free have no relevant requests,
    and Mid pods without requests are expected to use nothing.
    """
    priority_class = pod.priority_class
    if priority_class is PriorityClass.FREE:
        return NOTHING
    native = priority_class in LENDING_CLASSES
    asked = (pod.requests if native else pod.held).most(pod.limits)
    default = NOTHING if priority_class is PriorityClass.MID else DEFAULT_REQUEST
    own = pod.estimation if args.allow_customize_estimation and pod.estimation else _AS_IT_IS
    factors = args.estimated_scaling_factors
    return Resources(
        _scaled(asked[0], _either(own.cpu_factor, factors.cpu), pod.limits[0], default[0]),
        _scaled(asked[1], _either(own.memory_factor, factors.memory), pod.limits[1], default[1]),
    )


def deadline(pod: PodRecord, args: LoadAwareArgs) -> float | None:
    """Until when the pod counts with its estimate even if less was measured; Unix seconds, None for never.

    Once the pod is initialized that time matters: the time since it was scheduled includes its init containers.
    """
    after_scheduled = args.estimated_seconds_after_pod_scheduled
    after_initialized = args.estimated_seconds_after_initialized
    if args.allow_customize_estimation and pod.estimation is not None:
        after_scheduled = _either(pod.estimation.seconds_after_scheduled, after_scheduled)
        after_initialized = _either(pod.estimation.seconds_after_initialized, after_initialized)
    if after_initialized and pod.initialized_at is not None:
        return pod.initialized_at + after_initialized
    if after_scheduled and pod.scheduled_at is not None:
        return pod.scheduled_at + after_scheduled
    return None


def rounded(value: float) -> int:
    """A non-negative value rounded to the nearest integer, halves up, as Go rounds."""
    whole = int(value)
    return whole + 1 if value - whole >= 0.5 else whole


def _scaled(asked: int, factor: int, limit: int, default: int) -> int:
    if factor == 0:
        return 0
    if asked == 0:
        return default
    estimated = rounded(float(asked) * factor / 100)
    return min(estimated, limit) if limit > 0 else estimated


def _either(own: int | None, general: int) -> int:
    return general if own is None else own
