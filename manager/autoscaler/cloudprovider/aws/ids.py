"""Provider ids, `aws:///<zone>/<instance id>`, which link a Node to its instance."""

from shared.errors import InvalidInput

_PREFIX = "aws:///"
_SOURCE = "Node spec.providerID"


def provider_id(zone: str, instance: str) -> str:
    return f"{_PREFIX}{zone}/{instance}"


def instance_id(given: str) -> str:
    """Raises InvalidInput for an invalid provider id, in Escalator's words."""

    def refused(problem: str) -> InvalidInput:
        return InvalidInput(source=_SOURCE, field="providerID", value=given, problem=problem)

    if not given:
        raise refused("empty providerID, it may be set later by cloud controller")
    parts = given.split("/")
    if len(parts) < 5:
        raise refused(f"malformed providerID {given}: expected at least 4 slashes")
    return parts[4]
