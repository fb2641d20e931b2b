"""Which files a volume holds, and how they are replaced under a reader."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from deploy.local.kubelet import atomic
from deploy.local.kubelet.fields import Host
from deploy.local.kubelet.files import File, Reader
from deploy.local.kubelet.sources import Missing, Token
from deploy.local.kubelet.tokens import Tokens, renew_at
from deploy.local.kubelet.wire import (
    ConfigMapVolume,
    DownwardFile,
    DownwardVolume,
    KeyToPath,
    ObjectFieldSelector,
    PodSecurityContext,
    ProjectedVolume,
    Projection,
    RunnableContainer,
    RunnableMeta,
    RunnablePod,
    RunnableSpec,
    SecretVolume,
    TokenProjection,
    Volume,
)
from shared.errors import InvalidInput
from shared.quantity import Resources

NOW = 1_000_000.0
HOST = Host("127.0.0.1", Resources())


class Cluster:
    """One ConfigMap "there", and tokens that are numbered."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def config_map(self, namespace: str, name: str) -> Mapping[str, bytes]:
        if name != "there":
            raise Missing(f'configmap "{name}" not found')
        return {"a": b"1", "b": b"2"}

    def secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        return self.config_map(namespace, name)

    def token(self, pod: RunnablePod, audience: str, seconds: int, now: float) -> Token:
        self.asked.append((audience, seconds))
        return Token(f"token-{len(self.asked)}", now, now + seconds)


def read(volume: Volume, pod: RunnablePod | None = None) -> dict[str, File] | None:
    cluster = Cluster()
    return Reader(pod or RunnablePod(), HOST, cluster, Tokens(cluster)).files(volume, NOW)


def test_a_config_map_gives_all_its_keys_or_those_it_is_asked_for() -> None:
    assert read(Volume(config_map=ConfigMapVolume("there"))) == {"a": File(b"1", 0o644), "b": File(b"2", 0o644)}
    items = (KeyToPath("a", "x/y", mode=0o400),)
    chosen = Volume(secret=SecretVolume("there", items, default_mode=0o600))
    assert read(chosen) == {"x/y": File(b"1", 0o400)}


@pytest.mark.parametrize(("name", "key"), [("absent", "a"), ("there", "absent")])
def test_what_is_absent_is_missed_by_name_unless_it_is_optional(name: str, key: str) -> None:
    items = (KeyToPath(key, "file"),)
    with pytest.raises(Missing, match="absent"):
        read(Volume(config_map=ConfigMapVolume(name, items)))
    assert read(Volume(config_map=ConfigMapVolume(name, items, optional=True))) == {}


@pytest.mark.parametrize("path", ["../up", "/etc/passwd", "a/../../b", "..data", ""])
def test_a_path_that_leaves_its_volume_is_refused(path: str) -> None:
    with pytest.raises(InvalidInput, match="inside its volume"):
        read(Volume(config_map=ConfigMapVolume("there", (KeyToPath("a", path),))))


def admitted(pod: RunnablePod) -> dict[str, File]:
    """What every admitted pod is given."""
    namespace = DownwardFile("namespace", ObjectFieldSelector("metadata.namespace"))
    sources = (
        Projection(service_account_token=TokenProjection(expiration_seconds=3607, path="token")),
        Projection(config_map=ConfigMapVolume("there", (KeyToPath("a", "ca.crt"),))),
        Projection(downward_api=DownwardVolume((namespace,))),
    )
    found = read(Volume(projected=ProjectedVolume(sources)), pod)
    assert found is not None
    return found


def pod_with(context: PodSecurityContext) -> RunnablePod:
    spec = RunnableSpec(containers=(RunnableContainer(name="main"),), security_context=context)
    return RunnablePod(RunnableMeta(name="p", namespace="ns"), spec)


def test_a_projected_volume_puts_its_sources_together() -> None:
    found = admitted(pod_with(PodSecurityContext()))
    assert {path: file.content for path, file in found.items()} == {
        "token": b"token-1",
        "ca.crt": b"1",
        "namespace": b"ns",
    }
    assert found["token"].mode == 0o644


def test_a_token_is_for_the_eyes_of_its_user_alone() -> None:
    assert admitted(pod_with(PodSecurityContext(run_as_user=7)))["token"] == File(b"token-1", 0o600, owner=7)
    assert admitted(pod_with(PodSecurityContext(fs_group=8)))["token"].mode == 0o600


def test_volumes_that_hold_no_files_of_the_kubelet_are_none() -> None:
    assert read(Volume(name="x")) is None


def test_a_token_is_renewed_after_four_fifths_of_its_life_or_a_day() -> None:
    assert renew_at(Token("", NOW, NOW + 1000)) == NOW + 800
    assert renew_at(Token("", NOW, NOW + 1_000_000)) == NOW + 86_400


def test_a_token_is_asked_for_again_only_when_it_is_to_be_renewed() -> None:
    cluster = Cluster()
    tokens = Tokens(cluster)
    wanted = TokenProjection(audience="vault", expiration_seconds=1000)
    texts = [tokens.current(RunnablePod(), wanted, NOW + after).text for after in (0, 799, 800)]
    assert texts == ["token-1", "token-1", "token-2"]
    assert cluster.asked == [("vault", 1000)] * 2
    assert tokens.next_renewal() == NOW + 1600


def contents(directory: Path) -> dict[str, str]:
    """As a pod sees them."""
    return {
        str(path.relative_to(directory)): path.read_text()
        for path in directory.rglob("*")
        if path.is_file() and not str(path.relative_to(directory)).startswith("..")
    } | {link.name: link.read_text() for link in directory.iterdir() if link.is_file()}


def test_files_are_replaced_whole_and_old_ones_go(tmp_path: Path) -> None:
    assert atomic.write(tmp_path, {"a": File(b"1", 0o644), "b": File(b"2", 0o400)})
    first = os.readlink(tmp_path / "..data")
    assert contents(tmp_path) == {"a": "1", "b": "2"}
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o400
    assert atomic.write(tmp_path, {"a": File(b"3", 0o644), "c": File(b"4", 0o644)})
    assert contents(tmp_path) == {"a": "3", "c": "4"}
    assert not (tmp_path / first).exists()
    assert not os.path.lexists(tmp_path / "b")


def test_what_has_not_changed_is_left_alone(tmp_path: Path) -> None:
    files = {"a": File(b"1", 0o644), "deep/b": File(b"2", 0o644)}
    atomic.write(tmp_path, files)
    before = os.readlink(tmp_path / "..data")
    assert not atomic.write(tmp_path, files)
    assert os.readlink(tmp_path / "..data") == before
    assert (tmp_path / "deep" / "b").read_text() == "2"


def test_a_change_of_mode_is_a_change(tmp_path: Path) -> None:
    atomic.write(tmp_path, {"a": File(b"1", 0o644)})
    assert atomic.write(tmp_path, {"a": File(b"1", 0o600)})


def test_a_reader_that_has_a_file_open_keeps_what_it_reads(tmp_path: Path) -> None:
    atomic.write(tmp_path, {"a": File(b"old", 0o644)})
    with (tmp_path / "a").open() as file:
        atomic.write(tmp_path, {"a": File(b"new", 0o644)})
        assert file.read() == "old"


def test_a_write_that_was_cut_off_is_made_good_by_the_next(tmp_path: Path) -> None:
    atomic.write(tmp_path, {"a": File(b"1", 0o644)})
    (tmp_path / "..data_tmp").symlink_to("..cut-off")
    (tmp_path / "..cut-off").mkdir()
    assert atomic.write(tmp_path, {"a": File(b"1", 0o644)})
    assert not (tmp_path / "..cut-off").exists()
    (tmp_path / "a").unlink()
    assert atomic.write(tmp_path, {"a": File(b"1", 0o644)})
    assert contents(tmp_path) == {"a": "1"}
