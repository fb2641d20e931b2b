"""Rows from which the product differs on purpose, by id, with the reason. Adapters raise those of whole functions.

docs/how-to/escalator.md has all differences from Escalator.
"""

from collections.abc import Mapping

_GROWS_BELOW_MIN = "Escalator does not bring a group with too few nodes back to min_nodes"

KNOWN: Mapping[str, str] = {
    "config_validation-19": "Escalator's message about scale_up_cool_down_period names another key",
    "max_node_age-05": _GROWS_BELOW_MIN,
    "scale_decision-07": _GROWS_BELOW_MIN,
    "sync-06": "no annotation of a Node follows its labels: those that did serve Koordinator's own scheduler alone",
    "scale_on_starve-10": "Escalator takes a pod that starts on its node for one without a node",
}
