"""Nodes whose cpu or memory is reckoned otherwise than it is: amplified allocatable, normalised cpu.

Where Koordinator amplifies a node, `status.allocatable` is what the kubelet says times a ratio, and what the kubelet
says stands in an annotation. That is all anyone needs here: Mid and Batch are made of real capacity, so the ratios of
`resource-amplification-ratio` are of no concern. Batch cpu alone is counted in normalised cores, by a ratio of its own.
"""

import msgspec

from manager.noderesource import annotations
from shared import names
from shared.api.core import Node, Quantities
from shared.quantity import INT64_MAX, Resources

MAX_RATIO = 5.0  # Koordinator's own limit for the ratio of a cpu model

_LISTED = msgspec.json.Decoder(Quantities)


def raw_allocatable(node: Node) -> Resources | None:
    """What is allocatable without amplification, None where nothing is amplified. Raises InvalidInput.

    What the annotation does not name is as in the status. Nothing is ever more than there: amplification adds, so an
    annotation that says otherwise has been overtaken by the kubelet.
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
    """How many normalised cores a core of the node is, None where nobody says. Raises InvalidInput."""
    text = node.metadata.annotation(names.ANNOTATION_CPU_NORMALIZATION_RATIO)
    if text is None:
        return None
    try:
        ratio = float(text)
    except ValueError:
        ratio = 0.0
    if not 0 < ratio <= MAX_RATIO:  # as is nothing that is no number
        problem = f"expected a ratio such as '1.20', at most {MAX_RATIO:g}"
        raise annotations.refused(node, names.ANNOTATION_CPU_NORMALIZATION_RATIO, text, problem)
    return ratio


def normalized(batch_cpu: int, ratio: float | None) -> int:
    """Batch cpu in normalised milli-cores. A ratio below 1 changes nothing.

    Koordinator takes the product in thousandths of these, truncates it, and rounds what is left up to an integer.
    """
    if ratio is None or ratio <= 1:
        return batch_cpu
    return min(-(-int(batch_cpu * 1000 * ratio) // 1000), INT64_MAX)
