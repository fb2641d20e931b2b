"""Asks the manager to filter and score nodes, in the API of kube-scheduler's extenders (extender/v1)."""

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import httpx
import msgspec

from shared.api.core import Node, Pod

logger = logging.getLogger(__name__)

T = TypeVar("T")

REQUEST_SECONDS = 2.0
_JSON = {"Content-Type": "application/json"}
_WEIGHT = 10  # the extender's best score is 10, a node's own is 100


class _Args(msgspec.Struct, frozen=True, rename="pascal"):
    pod: Pod
    node_names: Sequence[str]


class _FilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    node_names: tuple[str, ...] | None = None
    failed_nodes: dict[str, str] | None = None
    failed_and_unresolvable_nodes: dict[str, str] | None = None
    error: str = ""


class _HostPriority(msgspec.Struct, frozen=True, rename="pascal"):
    host: str
    score: int


class Say(NamedTuple):
    """The nodes that remain, and the reason against each of the others by name."""

    left: list[Node]
    refusals: Mapping[str, str]


class Extender:
    """The extender at `url`. Pods do not wait for one that fails: it then refuses nothing and adds no score."""

    def __init__(self, url: str, timeout_seconds: float = REQUEST_SECONDS) -> None:
        self._url = url
        # The extender may just have closed a kept connection, and the failed call would then leave it out.
        anew = httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.Client(timeout=timeout_seconds, trust_env=False, limits=anew)

    def filtered(self, pod: Pod, nodes: list[Node]) -> Say:
        """The nodes that the extender accepts."""
        result = self._ask("filter", pod, nodes, _FilterResult)
        if result is not None and result.error:
            logger.warning("extender left out: %s", result.error, extra={"pod": pod.metadata.key})
        if result is None or result.error:
            return Say(nodes, {})
        refusals = (result.failed_nodes or {}) | (result.failed_and_unresolvable_nodes or {})
        return Say([node for node in nodes if node.metadata.name in (result.node_names or ())], refusals)

    def scores(self, pod: Pod, nodes: list[Node]) -> dict[str, int]:
        """The scores that the extender adds to the nodes' own, by name."""
        found = self._ask("prioritize", pod, nodes, tuple[_HostPriority, ...])
        return {one.host: one.score * _WEIGHT for one in found or ()}

    def close(self) -> None:
        self._http.close()

    def _ask(self, verb: str, pod: Pod, nodes: list[Node], into: type[T]) -> T | None:
        """The answer; None without one."""
        body = msgspec.json.encode(_Args(pod, [node.metadata.name for node in nodes]))
        try:
            answer = self._http.post(f"{self._url}/{verb}", content=body, headers=_JSON).raise_for_status()
            return msgspec.json.decode(answer.content, type=into)
        except (httpx.HTTPError, msgspec.MsgspecError) as error:
            logger.warning("%s/%s does not answer: %s", self._url, verb, error)
            return None
