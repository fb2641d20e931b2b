"""For predictors: the protocol, its inputs and results, and a `ModelTable` for tests.

Amounts are arrays whose last axis has two places: cpu in cores, memory in bytes. `PROD_PEAK` and `SYSTEM` are the keys
of two series of a node: all pods above Mid together with the system, and the system alone.
"""

from agent.metric_cache.series import PROD_PEAK, SYSTEM
from agent.predict_server.histories import Candidates, Histories
from agent.predict_server.models import (
    Debt,
    OpenPromises,
    Outcome,
    Parameters,
    Predictor,
    Situation,
    Uses,
)
from agent.predict_server.reclaimable import Inputs, Reclaimable
from agent.predict_server.table import ModelTable
from shared.api.predictionprior import ObservedTail, Prior
from shared.errors import HeadroomError, InvalidInput

__all__ = [
    "PROD_PEAK",
    "SYSTEM",
    "Candidates",
    "Debt",
    "HeadroomError",
    "Histories",
    "Inputs",
    "InvalidInput",
    "ModelTable",
    "ObservedTail",
    "OpenPromises",
    "Outcome",
    "Parameters",
    "Predictor",
    "Prior",
    "Reclaimable",
    "Situation",
    "Uses",
]
