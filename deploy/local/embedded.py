"""The embedded API server as a part of a local cluster."""

from dataclasses import dataclass
from pathlib import Path

from deploy.local.ports import LOOPBACK
from deploy.local.supervisor import Program

CRD_DIR = Path(__file__).parent.parent / "helm" / "headroom" / "files" / "crds"


@dataclass(frozen=True)
class EmbeddedServer:
    """One API server that keeps its state in `directory`; `token_file` holds the token of all clients."""

    directory: Path
    port: int
    token_file: Path

    @property
    def server(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def ca_file(self) -> Path | None:
        return None

    @property
    def kubelet_certificate(self) -> tuple[str, ...]:
        return ()

    def programs(self) -> list[Program]:
        """The server's single process."""
        arguments = (
            *("--listen", f"{LOOPBACK}:{self.port}"),
            *("--data-dir", str(self.directory)),
            *("--token-file", str(self.token_file)),
            *("--crd-dir", str(CRD_DIR)),
        )
        return [Program("apiserver", "deploy.local.apiserver", arguments)]

    def prepare(self, admin: Path) -> None:
        """Does nothing: the server defines the custom kinds at its start."""

    def controllers(self) -> list[Program]:
        """Empty: the server does their work itself."""
        return []
