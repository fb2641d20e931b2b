"""Which files a volume holds, from what its sources say."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from deploy.local.kubelet import fields, identity
from deploy.local.kubelet.fields import Host
from deploy.local.kubelet.sources import Missing, Sources
from deploy.local.kubelet.tokens import Tokens
from deploy.local.kubelet.wire import (
    DownwardFile,
    DownwardVolume,
    KeyToPath,
    ProjectedVolume,
    Projection,
    RunnablePod,
    Volume,
)
from shared.errors import InvalidInput

_PRIVATE_MODE = 0o600


@dataclass(frozen=True)
class File:
    """`owner`: the user it belongs to, None for the kubelet's own."""

    content: bytes
    mode: int
    owner: int | None = None


Files = Mapping[str, File]  # by path inside the volume


@dataclass(frozen=True)
class Reader:
    """Reads the sources of one pod's volumes."""

    pod: RunnablePod
    host: Host
    sources: Sources
    tokens: Tokens

    def files(self, volume: Volume, now: float) -> dict[str, File] | None:
        """All files of `volume`, or None where it is no volume of files.

        Raises Missing for what is not there (yet), InvalidInput, HeadroomError.
        """
        if volume.projected is not None:
            return self._projected(volume.projected, now)
        if volume.config_map is not None:
            source = volume.config_map
            found = self._keyed("configmap", source.name, source.items, optional=source.optional)
            return self._with_modes(found, source.items, source.default_mode)
        if volume.secret is not None:
            secret = volume.secret
            found = self._keyed("secret", secret.secret_name, secret.items, optional=secret.optional)
            return self._with_modes(found, secret.items, secret.default_mode)
        if volume.downward_api is not None:
            return self._downward(volume.downward_api, volume.downward_api.default_mode)
        return None

    def _projected(self, volume: ProjectedVolume, now: float) -> dict[str, File]:
        files: dict[str, File] = {}
        for projection in volume.sources or ():
            files |= self._projection(projection, volume.default_mode, now)
        return files

    def _projection(self, source: Projection, mode: int, now: float) -> dict[str, File]:
        if source.service_account_token is not None:
            wanted = source.service_account_token
            token = self.tokens.current(self.pod, wanted, now).text.encode()
            owner = identity.files_owner(self.pod)
            private = owner is not None or self.pod.spec.security_context.fs_group is not None
            return {self._inside(wanted.path): File(token, _PRIVATE_MODE if private else mode, owner)}
        if source.config_map is not None:
            chosen = source.config_map
            found = self._keyed("configmap", chosen.name, chosen.items, optional=chosen.optional)
            return self._with_modes(found, chosen.items, mode)
        if source.secret is not None:
            secret = source.secret
            found = self._keyed("secret", secret.name, secret.items, optional=secret.optional)
            return self._with_modes(found, secret.items, mode)
        if source.downward_api is not None:
            return self._downward(source.downward_api, mode)
        raise InvalidInput(
            source=f"pod {self.pod.metadata.key}",
            field="projected.sources",
            value="",
            problem="this kubelet knows serviceAccountToken, configMap, secret and downwardAPI",
        )

    def _keyed(self, kind: str, name: str, items: Iterable[KeyToPath] | None, *, optional: bool) -> Mapping[str, bytes]:
        """Contents by path: all keys, or the `items` under the paths they name."""
        namespace = self.pod.metadata.namespace
        read = self.sources.config_map if kind == "configmap" else self.sources.secret
        try:
            found = read(namespace, name)
        except Missing:
            if optional:
                return {}
            raise
        if items is None:
            return found
        absent = [item.key for item in items if item.key not in found]
        if absent and not optional:
            raise Missing(f'{kind} "{name}" references non-existent key: {absent[0]}')
        return {item.path: found[item.key] for item in items if item.key in found}

    def _with_modes(
        self, contents: Mapping[str, bytes], items: Iterable[KeyToPath] | None, default: int
    ) -> dict[str, File]:
        modes = {item.path: item.mode for item in items or () if item.mode is not None}
        return {self._inside(path): File(content, modes.get(path, default)) for path, content in contents.items()}

    def _downward(self, volume: DownwardVolume, mode: int) -> dict[str, File]:
        return {
            self._inside(item.path): File(self._downward_text(item).encode(), mode if item.mode is None else item.mode)
            for item in volume.items or ()
        }

    def _downward_text(self, item: DownwardFile) -> str:
        if item.field_ref is not None:
            return fields.field_value(item.field_ref, self.pod, self.host)
        if item.resource_field_ref is None:
            return ""
        name = item.resource_field_ref.container_name
        for container in self.pod.all_containers:
            if container.name == name:
                return fields.resource_value(item.resource_field_ref, container, self.pod, self.host)
        raise InvalidInput(
            source=f"pod {self.pod.metadata.key}", field="containerName", value=name, problem="no such container"
        )

    def _inside(self, path: str) -> str:
        """`path` as it is, if it stays inside its volume; the API server checks it too. Raises InvalidInput."""
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts or parts[0].startswith(".."):
            raise InvalidInput(
                source=f"pod {self.pod.metadata.key}", field="path", value=path, problem="must lie inside its volume"
            )
        return path
