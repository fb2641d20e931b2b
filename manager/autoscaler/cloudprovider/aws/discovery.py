"""Which groups ask for an autoscaler by their tags, in the words of Cluster Autoscaler's flag."""

from collections.abc import Iterable, Mapping

from shared.errors import InvalidInput

FLAG, FIELD = "--node-group-auto-discovery", "nodeGroupAutoDiscovery"
KIND = "asg:"
PREFIX = f"{KIND}tag="

Tags = Mapping[str, str]  # a group has all of them; an empty value is any


def parse_discovery(texts: Iterable[str]) -> tuple[Tags, ...]:
    """Each text such as "asg:tag=k8s.io/cluster-autoscaler/enabled,team=web"; a group is found by any of them.

    A key without a value takes any value, "false" included. The command line splits at commas, so what does not begin
    like a text of its own goes on with the one before. Raises InvalidInput.
    """
    found = []
    for text in _whole(texts):
        pairs = [part.strip().partition("=") for part in text.removeprefix(PREFIX).split(",")]
        if not text.startswith(PREFIX) or not all(key for key, _, _ in pairs):
            problem = f"expected {PREFIX}KEY,KEY=VALUE"
            raise InvalidInput(source=FLAG, field=FIELD, value=text, problem=problem)
        found.append({key: value for key, _, value in pairs})
    return tuple(found)


def _whole(texts: Iterable[str]) -> list[str]:
    joined: list[str] = []
    for text in texts:
        if joined and not text.startswith(KIND):
            joined[-1] += f",{text}"
        else:
            joined.append(text)
    return joined
