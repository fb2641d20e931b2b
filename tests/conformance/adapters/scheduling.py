"""Help for schedulers: the estimate of what a pod will use."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from manager import pods
from manager.nodeside.scheduling import args, estimate
from shared import names
from shared.api.core import Container, Pod, PodSpec, Quantities, ResourceRequirements
from shared.api.meta import ObjectMeta
from shared.names import PriorityClass

NATIVE = (names.CPU, names.MEMORY)
BATCH = (names.BATCH_CPU, names.BATCH_MEMORY)

Input = dict[str, Any]  # a row's input, JSON of the row's own making


def loadaware_estimator(row: Input) -> object:
    priority_class = PriorityClass.BATCH if "batch" in row else PriorityClass.PROD
    custom = row.get("customFactors")
    annotations = {names.ANNOTATION_ESTIMATED_SCALING_FACTORS: json.dumps(custom)} if custom else None
    resources = ResourceRequirements(
        requests=_listed(NATIVE, row.get("requests")) | _listed(BATCH, row.get("batch")),
        limits=_listed(NATIVE, row.get("limits")),
    )
    pod = Pod(
        metadata=ObjectMeta(labels={names.LABEL_PRIORITY_CLASS: priority_class}, annotations=annotations),
        spec=PodSpec(containers=(Container(resources=resources),)),
    )
    default = row.get("defaultFactors")
    factors = row.get("factors") or default
    document = {"estimatedScalingFactors": factors, "allowCustomizeEstimation": custom is not None}
    found = estimate.estimate(pods.record(pod), args.parse(document, source="row"))
    return {"cpu_milli": found.cpu_milli, "memory_bytes": found.memory_bytes}


def _listed(resources: tuple[str, str], amounts: list[str] | None) -> Quantities:
    return dict(zip(resources, amounts, strict=True)) if amounts else {}


ADAPTERS: Mapping[str, Callable[[Any], object]] = {"loadaware_estimator": loadaware_estimator}
