"""What a provider has to be allowed in the cluster, asked of the API server before it is needed.

A right that is missing shows where every problem of an iteration does, not first when a node is to be bought.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from shared.clock import Clock
from shared.errors import HeadroomError, InvalidInput
from shared.kube.client import Client
from shared.kube.resources import SELFSUBJECTACCESSREVIEWS

REVIEW_SECONDS = 600.0  # between two reviews of all rights
RETRY_SECONDS = 60.0  # after one without an answer
ANSWER_SECONDS = 5.0  # for one right; the iteration waits for it


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource, with `/` before a subresource. Without a `namespace` it is for all of the cluster, and
    without a `name` for all objects.
    """

    verb: str
    api_group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.api_group}" if self.api_group else self.resource
        name = f" {self.name}" if self.name else ""
        return f"{self.verb} {resource}{name}{f' in {self.namespace}' if self.namespace else ''}"

    @property
    def attributes(self) -> dict[str, str]:
        """As a review has them."""
        resource, _, subresource = self.resource.partition("/")
        return {
            "verb": self.verb,
            "group": self.api_group,
            "resource": resource,
            "subresource": subresource,
            "namespace": self.namespace,
            "name": self.name,
        }


def config_map_rights(namespace: str, name: str) -> list[Right]:
    """What a `ConfigMapStore` needs. A ConfigMap that is created has no name to be held to."""
    created = Right("create", "", "configmaps", namespace=namespace)
    return [created, *(Right(verb, "", "configmaps", namespace=namespace, name=name) for verb in ("get", "update"))]


class _Status(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


class RightsReview:
    """The rights that a provider lacks, reviewed now and then. For one thread."""

    def __init__(self, client: Client, provider: str, rights: Sequence[Right], clock: Clock) -> None:
        self._client = client.single_attempt(ANSWER_SECONDS)
        self._provider = provider
        self._rights = rights
        self._clock = clock
        self._missing: list[Right] = []
        self._due = 0.0

    def problems(self) -> dict[str, InvalidInput]:
        """One problem that names all missing rights; empty without any. While the API server gives no answer, the last
        one stands.
        """
        now = self._clock.monotonic()
        if self._rights and now >= self._due:
            self._due = now + RETRY_SECONDS
            with contextlib.suppress(HeadroomError):
                self._missing = [each for each in self._rights if not self._is_granted(each)]
                self._due = now + REVIEW_SECONDS
        if not self._missing:
            return {}
        source = f"rights of the cloud provider {self._provider}"
        problem = "not granted; the chart's rules for this provider grant them"
        missing = ", ".join(map(str, self._missing))
        return {source: InvalidInput(source=source, field="rights", value=missing, problem=problem)}

    def _is_granted(self, right: Right) -> bool:
        spec = {"resourceAttributes": right.attributes}
        review = self._client.review(SELFSUBJECTACCESSREVIEWS, "SelfSubjectAccessReview", spec, into=_Review)
        return review.status.allowed
