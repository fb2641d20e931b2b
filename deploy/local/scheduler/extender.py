"""Calls HTTP extenders to filter and score nodes, as kube-scheduler does (k8s.io/kube-scheduler/extender/v1)."""

import logging
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from deploy.local.scheduler.configuration import ExtenderConfig
from shared.api.core import Node, Pod
from shared.errors import HeadroomError, InvalidInput

logger = logging.getLogger(__name__)

T = TypeVar("T")

_JSON = {"Content-Type": "application/json"}

MAX_PRIORITY = 10  # an extender's score for the best node


class ExtenderFailed(HeadroomError):
    """An extender that is not ignorable did not answer."""


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


_FILTERED = msgspec.json.Decoder(_FilterResult)
_PRIORITIES = msgspec.json.Decoder(tuple[_HostPriority, ...])


class Say(NamedTuple):
    """The nodes that remain, and the reason against each of the others by name."""

    left: list[Node]
    refusals: Mapping[str, str]


class Extenders:
    """All extenders, called in order; each one gets the nodes that the previous one accepted."""

    def __init__(self, configured: Iterable[ExtenderConfig]) -> None:
        self._extenders = [_Extender(config) for config in configured]

    def filtered(self, pod: Pod, nodes: list[Node]) -> Say:
        """The nodes that all extenders accept. Raises ExtenderFailed."""
        refusals: dict[str, str] = {}
        for extender in self._extenders:
            if not nodes or not extender.config.filter_verb:
                continue
            try:
                nodes, refused = extender.filtered(pod, nodes)
            except ExtenderFailed as failure:
                if not extender.config.ignorable:
                    raise
                logger.warning("extender left out: %s", failure, extra={"pod": pod.metadata.key})
            else:
                refusals |= refused
        return Say(nodes, refusals)

    def scores(self, pod: Pod, nodes: list[Node]) -> dict[str, int]:
        """What the extenders add to the nodes' own scores, which are up to 100; an extender that fails adds nothing."""
        total = dict.fromkeys((node.metadata.name for node in nodes), 0)
        for extender in self._extenders:
            if not extender.config.prioritize_verb:
                continue
            try:
                for host, score in extender.priorities(pod, nodes):
                    if host in total:
                        total[host] += score * extender.config.weight * (100 // MAX_PRIORITY)
            except ExtenderFailed as failure:
                logger.warning("extender left out: %s", failure, extra={"pod": pod.metadata.key})
        return total

    def close(self) -> None:
        for extender in self._extenders:
            extender.close()


class _Extender:
    """One extender and the connection to it."""

    def __init__(self, config: ExtenderConfig) -> None:
        import httpx  # imported here, as most schedulers have no extender

        self.config = config
        # The extender may just have closed a kept connection; the failed call would then skip an ignorable extender.
        anew = httpx.Limits(max_keepalive_connections=0)
        tls = _tls(config)
        self._http = httpx.Client(timeout=config.timeout_seconds, trust_env=False, limits=anew, verify=tls)
        self._extensions = {"sni_hostname": config.tls_config.server_name} if config.tls_config.server_name else {}
        self._errors = (httpx.HTTPError, httpx.InvalidURL)

    def filtered(self, pod: Pod, nodes: list[Node]) -> Say:
        """Raises ExtenderFailed."""
        verb = self.config.filter_verb
        result: _FilterResult = self._ask(verb, pod, nodes, _FILTERED)
        if result.error:
            raise ExtenderFailed(f"{self.config.url_prefix}/{verb}: {result.error}")
        names = result.node_names
        known = {node.metadata.name: node for node in nodes}
        unknown = [name for name in names or () if name not in known]
        if unknown:
            raise ExtenderFailed(f"{self.config.url_prefix}/{verb}: nobody asked it about node {unknown[0]}")
        refusals = (result.failed_nodes or {}) | (result.failed_and_unresolvable_nodes or {})
        return Say([known[name] for name in names or ()], refusals)

    def priorities(self, pod: Pod, nodes: list[Node]) -> Iterable[tuple[str, int]]:
        """Raises ExtenderFailed."""
        found: tuple[_HostPriority, ...] = self._ask(self.config.prioritize_verb, pod, nodes, _PRIORITIES)
        return [(one.host, one.score) for one in found]

    def close(self) -> None:
        self._http.close()

    def _ask(self, verb: str, pod: Pod, nodes: list[Node], decoder: msgspec.json.Decoder[T]) -> T:
        args = _Args(pod, [node.metadata.name for node in nodes])
        url = f"{self.config.url_prefix.rstrip('/')}/{verb}"
        try:
            answer = self._http.post(url, content=msgspec.json.encode(args), headers=_JSON, extensions=self._extensions)
            if answer.status_code != 200:
                raise ExtenderFailed(f"{url}: status {answer.status_code}: {answer.text[:200]}")
            return decoder.decode(answer.content)
        except (*self._errors, msgspec.MsgspecError) as error:
            raise ExtenderFailed(f"{url}: {error}") from error


def _tls(config: ExtenderConfig) -> ssl.SSLContext:
    """Raises InvalidInput."""
    files = config.tls_config
    try:
        context = ssl.create_default_context(cafile=files.ca_file or None)
        if files.cert_file:
            context.load_cert_chain(files.cert_file, files.key_file or None)
    except OSError as error:  # includes ssl.SSLError
        value = f"{files.ca_file} {files.cert_file} {files.key_file}"
        problem = f"cannot be used: {error}"
        raise InvalidInput(source=config.url_prefix, field="tlsConfig", value=value, problem=problem) from error
    return context
