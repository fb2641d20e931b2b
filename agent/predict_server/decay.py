"""The one decay rule of histograms and moments: a sample loses half of its weight per half-life.

Stored weights do not change as time passes. Instead, a new sample weighs 2^((t - reference) / half-life), and when
those powers grow large the reference moves forward and all weights are scaled down once (the scheme and constants of
VPA's and Koordinator's decaying histograms).
"""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# The initial reference, and the origin of its multiples: Go's zero time, 0001-01-01T00:00:00Z.
ZERO_TIME = -62135596800.0
MAX_DECAY_EXPONENT = 100


def rounded_reference(time: float, half_life_seconds: float) -> float:
    """The multiple of the half-life (counted from the zero time) nearest to `time`; the middle goes up."""
    return math.floor((time - ZERO_TIME) / half_life_seconds + 0.5) * half_life_seconds + ZERO_TIME


def must_shift(references: Floats, time: float, half_life_seconds: float) -> NDArray[np.bool_]:
    """Which references lie too far in the past for a sample at `time`."""
    return np.asarray(time > references + MAX_DECAY_EXPONENT * half_life_seconds)


def shift_factors(references: Floats, new_reference: float | Floats, half_life_seconds: float) -> Floats:
    """The factors of the weights when references become `new_reference`; distant ones underflow to 0, as intended."""
    return np.exp2(np.round((references - new_reference) / half_life_seconds))


def sample_weights(references: Floats, time: float, half_life_seconds: float) -> Floats:
    """The amount that a sample of weight 1 at `time` adds under each reference."""
    return np.exp2((time - references) / half_life_seconds)
