"""Nodes with converted cpu or memory: amplified allocatable, normalized cpu.

On an amplified node, Koordinator sets `status.allocatable` to the kubelet's value times a ratio, and stores the
kubelet's value in an annotation. Only that annotation matters here: Mid and Batch come from real capacity, so the
ratios of `resource-amplification-ratio` are irrelevant. Only Batch cpu is counted in normalized cores, by a ratio of
its own.
"""

import msgspec

from manager.nodeside.noderesource import annotations
from shared import names
from shared.api.core import Node, Quantities
from shared.quantity import INT64_MAX, Resources

MAX_RATIO = 5.0  # Koordinator's limit for the ratio of a cpu model

_LISTED = msgspec.json.Decoder(Quantities)


def raw_allocatable(node: Node) -> Resources | None:
    """The allocatable without amplification, None if nothing is amplified. Raises InvalidInput.

    Resources that the annotation does not name are as in the status. No amount exceeds the status: amplification adds,
    so a larger value in the annotation is outdated.
    """
    raw = annotations.read(node, names.ANNOTATION_RAW_ALLOCATABLE, _LISTED)
    if raw is None:
        return None
    listed = node.status.allocatable or {}
    try:
        return Resources.parse_amount({**listed, **raw}).least(Resources.parse_amount(listed))
    except ValueError as error:  # a QuantityError, or more digits than Python reads
        raise annotations.refused(node, names.ANNOTATION_RAW_ALLOCATABLE, raw, str(error)) from error


def cpu_normalization_ratio(node: Node) -> float | None:
    """How many normalized cores one core of the node is, None without a ratio. Raises InvalidInput."""
    text = node.metadata.annotation(names.ANNOTATION_CPU_NORMALIZATION_RATIO)
    if text is None:
        return None
    try:
        ratio = float(text)
    except ValueError:
        ratio = 0.0
    if not 0 < ratio <= MAX_RATIO:  # also excludes NaN
        problem = f"expected a ratio such as '1.20', at most {MAX_RATIO:g}"
        raise annotations.refused(node, names.ANNOTATION_CPU_NORMALIZATION_RATIO, text, problem)
    return ratio


def normalized(batch_cpu: int, ratio: float | None) -> int:
    """Batch cpu in normalized milli-cores. A ratio below 1 changes nothing.

    Koordinator truncates the product to thousandths of these, and rounds the rest up to an integer.
    """
    if ratio is None or ratio <= 1:
        return batch_cpu
    return min(-(-int(batch_cpu * 1000 * ratio) // 1000), INT64_MAX)
