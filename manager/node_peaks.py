"""The predicted peaks of nodes; every manager imports this module."""

from dataclasses import dataclass

from shared.quantity import Resources


@dataclass(frozen=True, slots=True)
class NodePeaks:
    """The predicted peak of a node's pods above Mid together with its system, and the last usage of its Mid pods.

    Both cover the pods that were present when it was `reported_at`, in Unix seconds.
    """

    prod: Resources
    mid: Resources
    reported_at: float
