"""One model's histogram in the form VPA and Koordinator exchange: relative integer weights, and the total.

People and other programs read it. It drops weights below 0.005 % of the heaviest bucket, so our own checkpoints hold
the exact arrays instead.
"""

import math

import msgspec
import numpy as np

from agent.predict_server.bank import Bank

MAX_WEIGHT = 10000


class CompactHistogram(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`reference_timestamp` in Unix seconds; weights by bucket, the heaviest 10000."""

    reference_timestamp: float
    bucket_weights: dict[int, int] = {}
    total_weight: float = 0.0


def save(bank: Bank, row: int) -> CompactHistogram:
    weights = bank.histograms.counting(np.array([row]))[0]
    # By a power of two, which is exact; the reciprocal of a very small weight would be infinite.
    heaviest, exponent = math.frexp(weights.max())
    scaled = np.floor(np.ldexp(weights, -exponent) * (MAX_WEIGHT / heaviest) + 0.5) if heaviest > 0 else weights
    return CompactHistogram(
        reference_timestamp=float(bank.references[row]),
        bucket_weights={int(bucket): int(scaled[bucket]) for bucket in np.flatnonzero(scaled)},
        total_weight=float(bank.histograms.totals[row]),
    )


def load(bank: Bank, row: int, compact: CompactHistogram) -> None:
    """Adds the weights to the row. Raises ValueError for a bucket that does not exist or a negative total.

    The moments stay unchanged, because buckets do not determine them.
    """
    if compact.total_weight < 0:
        raise ValueError(f"negative total weight {compact.total_weight}")
    outside = [bucket for bucket in compact.bucket_weights if not 0 <= bucket < bank.histograms.buckets.count]
    if outside:
        raise ValueError(f"no such bucket: {outside[0]}")
    bank.references[row] = compact.reference_timestamp
    scale = sum(compact.bucket_weights.values())
    if not scale:
        return
    for bucket, weight in compact.bucket_weights.items():
        bank.histograms.weights[row, bucket] += weight * (compact.total_weight / scale)
    bank.histograms.totals[row] += compact.total_weight
    bank.histograms.trim(np.array([row]))
