"""The N-sigma peaks under a policy, whichever model is active. Pure."""

from agent.predict_server import reclaimable
from agent.predict_server.lenders import Requests
from agent.predict_server.models import NSigmaV1, NSigmaV2, Situation
from agent.predict_server.policy import PredictionPolicy
from agent.predict_server.reclaimable import in_integers, largest
from shared.quantity import Resources


def peaks(policy: PredictionPolicy, situation: Situation) -> dict[str, Resources]:
    """The peaks of v1 and v2, by name: v1 is the first of v2's candidates."""
    candidates = in_integers(NSigmaV2(policy.parameters).peak(situation))
    return {NSigmaV1.name: candidates[NSigmaV1.name], NSigmaV2.name: largest(candidates)}


def safe(policy: PredictionPolicy, situation: Situation, requests: Requests) -> dict[str, Resources]:
    """Replaces the result of a failed model: all requests, or v2's peak where usage is above them."""
    return in_integers(NSigmaV2(policy.parameters).peak(situation)) | reclaimable.standing_in(requests)
