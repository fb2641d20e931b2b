"""Scale-up's options from the settings: bounds of the cluster, estimates and prices."""

from collections.abc import Callable, Sequence
from pathlib import Path

from manager.autoscaler.cloudprovider.plugin import ProviderPlugin
from manager.autoscaler.decision_settings import AUTO, FLAGS, GCE, NONE, PROVIDER
from manager.autoscaler.estimator import limits
from manager.autoscaler.estimator.limits import ResourceBounds
from manager.autoscaler.expander import chain
from manager.autoscaler.pricing import price_sources
from manager.autoscaler.pricing.model import GIB, PricingModel
from manager.autoscaler.scale_up.balancing import IGNORED_LABELS, SimilarityRules
from manager.autoscaler.scale_up.options import EstimateRules, TimeLimits
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from shared.errors import InvalidInput


def read_bounds(settings: AutoscalerSettings) -> dict[str, ResourceBounds]:
    cpu = _range("cores-total", settings.cores_total, "cpu", settings.min_cpu, settings.max_cpu)
    memory = _range("memory-total", settings.memory_total, "memory", settings.min_memory, settings.max_memory)
    in_bytes = ResourceBounds(*(None if each is None else each * GIB for each in (memory.low, memory.high)))
    bounds = {limits.CPU: cpu, limits.MEMORY: in_bytes}
    for text in settings.gpu_total:
        kind, found = limits.parse_gpu_total(text)
        if kind in bounds:
            raise InvalidInput(source=FLAGS, field="gpu-total", value=text, problem="one type twice")
        bounds[kind] = found
    return {resource: each for resource, each in bounds.items() if each != ResourceBounds()}


def _range(total: str, text: str, name: str, low: int | None, high: int | None) -> ResourceBounds:
    """The bounds of one resource from either of the two flag forms; a minimum of 0 means none."""
    if text and (low is not None or high is not None):
        raise InvalidInput(
            source=FLAGS, field=total, value=text, problem=f"min-{name} and max-{name} say the same; give one of both"
        )
    source = total if text else f"min-{name}"
    if text:
        low, high = map(int, text.split(":"))
    if low is not None and high is not None and low > high:
        raise InvalidInput(source=FLAGS, field=source, value=text or low, problem=f"above the maximum of {high}")
    return ResourceBounds(low or None, high)


def read_estimates(settings: AutoscalerSettings, clock: Callable[[], float] | None) -> EstimateRules:
    time = None
    if clock is not None:
        time = TimeLimits(
            clock, settings.max_binpacking_time_seconds, settings.max_nodegroup_binpacking_duration_seconds
        )
    return EstimateRules(
        balance_similar=settings.balance_similar_node_groups,
        all_or_nothing=settings.scale_up_all_or_nothing,
        fast_path=settings.fastpath_binpacking_enabled,
        most_nodes=settings.max_nodes_per_scaleup,
        similarity=SimilarityRules(
            settings.memory_difference_ratio,
            settings.max_allocatable_difference_ratio,
            settings.max_free_difference_ratio,
            IGNORED_LABELS | frozenset(settings.balancing_ignore_label),
            frozenset(settings.balancing_label),
        ),
        time=time,
    )


def read_prices(
    settings: AutoscalerSettings, expanders: Sequence[str], provider: ProviderPlugin | None
) -> str | PricingModel:
    """Checks that prices are configured: an option without a price is never chosen, so without prices nothing would
    grow.
    """
    chosen = settings.prices
    if chain.PRICE in expanders:
        problem = ""
        if chosen == NONE:
            problem = f"the expander {chain.PRICE} needs prices: give some, or another --expander"
        elif chosen == PROVIDER and provider is not None and not provider.has_prices:
            problem = f"{settings.cloud_provider} has no prices of its own, and the expander {chain.PRICE} needs some"
        if problem:
            raise InvalidInput(source=FLAGS, field="prices", value=chosen, problem=problem)
    return chosen if chosen in (AUTO, PROVIDER, GCE, NONE) else price_sources.load(Path(chosen))
