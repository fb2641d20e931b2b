"""Selects the cluster that a command speaks to."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shared.kube.config import Connection


@dataclass(frozen=True)
class ClusterContext:
    """A kubeconfig and a context of it, in kubectl's words. Without both: the cluster that the command runs in, or the
    current context of the user's kubeconfig.
    """

    kubeconfig: Path | None = None
    context: str = ""

    def connection(self) -> "Connection":
        """Raises InvalidInput."""
        from shared.kube import config  # here, as help is shown without

        return config.discover(str(self.kubeconfig) if self.kubeconfig else None, self.context or None)

    def kubectl_flags(self) -> list[str]:
        """kubectl's flags for the same cluster."""
        kubeconfig = ["--kubeconfig", str(self.kubeconfig)] if self.kubeconfig else []
        return [*kubeconfig, *(["--context", self.context] if self.context else [])]


CURRENT = ClusterContext()
