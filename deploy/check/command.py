"""Prints the findings of `headroom check`."""

import importlib.metadata
from collections.abc import Sequence

import msgspec

from deploy.access import ClusterContext
from deploy.check import findings, reading
from deploy.check.findings import Finding, Verdict
from deploy.rendering import aligned, structured
from shared.plugins import DISTRIBUTION


class Report(msgspec.Struct, frozen=True):
    """All findings."""

    findings: list[Finding]

    @property
    def has_passed(self) -> bool:
        """Whether nothing is bad; what is unknown may be."""
        return all(each.status is not Verdict.BAD for each in self.findings)


def report(access: ClusterContext, *, namespace: str, manager: str, service: str) -> Report:
    """Checks the cluster. Raises InvalidInput."""
    here = importlib.metadata.version(DISTRIBUTION)
    seen = reading.observed(access, here=here, namespace=namespace, manager=manager, service=service)
    return Report(findings.findings(seen))


def rendered(found: Report, style: str) -> str:
    """The report to print."""
    return _table(found.findings) if style == "table" else structured(found, style)


def _table(found: Sequence[Finding]) -> str:
    lines = aligned([(each.status.value, each.check, each.detail) for each in found])
    shown = [
        text
        for line, each in zip(lines, found, strict=True)
        for text in (line, *([f"         do: {each.action}"] if each.action else []))
    ]
    bad = sum(each.status is Verdict.BAD for each in found)
    return "\n".join([*shown, "", f"{bad} of {len(found)} checks are bad"])
