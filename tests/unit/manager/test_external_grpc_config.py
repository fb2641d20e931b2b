"""The cloud-config of the external gRPC provider, and answers that are not the protocol's."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.autoscaler.cloudprovider.externalgrpc import config, core_v1, messages
from manager.autoscaler.cloudprovider.externalgrpc.config import GrpcConfig
from manager.autoscaler.cloudprovider.externalgrpc.provider import ExternalGrpcProvider
from shared.clock import ManualClock
from shared.errors import InvalidInput
from shared.protobuf import Malformed
from tests.support.apiserver import ROOT

READERS = (
    messages.read_groups,
    messages.read_group_of_node,
    messages.read_int,
    messages.read_double,
    messages.read_text,
    messages.read_keys,
    messages.read_instances,
    messages.read_template,
    messages.read_options,
    core_v1.node,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("address: a:1", GrpcConfig("a:1")),
        ("{address: a:1, grpc_timeout: 1m}", GrpcConfig("a:1", None, 60.0)),
        ("{address: a:1, grpc_timeout: 2}", GrpcConfig("a:1", None, 2.0)),
    ],
)
def test_a_config_is_read(tmp_path: Path, text: str, expected: GrpcConfig) -> None:
    (tmp_path / "c").write_text(text)
    assert config.load(tmp_path / "c") == expected


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "(document)"),
        ("address: ''", "address"),
        ("[]", "(document)"),
        ("{address: a:1, adress: b}", "(document)"),
        ("{address: a:1, cert: missing, key: missing}", "cert"),
        ("{address: a:1, cacert: missing}", "cacert"),
        ("address: a", "address"),
        ("address: not an address!!", "address"),
        ("address: http://a:80", "address"),
        ("address: a:65536", "address"),
        ("address: a:0", "address"),
        ("{address: a:1, key: k}", "cert"),
        ("{address: a:1, cert: c}", "key"),
        ("{address: a:1, grpc_timeout: soon}", "grpc_timeout"),
        ("{address: a:1, grpc_timeout: 0s}", "grpc_timeout"),
        ("{address: a:1, grpc_timeout: .inf}", "grpc_timeout"),
    ],
)
def test_a_config_that_means_nothing_is_refused_by_field(tmp_path: Path, text: str, field: str) -> None:
    (tmp_path / "c").write_text(text)
    with pytest.raises(InvalidInput) as caught:
        config.load(tmp_path / "c")
    assert (caught.value.source, caught.value.field) == (str(tmp_path / "c"), field)


@pytest.mark.parametrize(
    "address",
    ["cloud.example:443", "10.0.0.1:80", "[::1]:80", "dns:///cloud:1", "dns://8.8.8.8/cloud:1", "unix:/run/x"],
)
def test_an_address_is_whatever_grpc_connects_to(tmp_path: Path, address: str) -> None:
    (tmp_path / "c").write_text(f'address: "{address}"')
    assert config.load(tmp_path / "c").address == address


def test_what_is_no_certificate_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("none")
    bad = tmp_path / "bad"
    for field, files in (("cacert", f"cacert: {bad}"), ("cert", f"cert: {bad}, key: {bad}")):
        (tmp_path / "c").write_text(f"{{address: 'a:1', {files}}}")
        with pytest.raises(InvalidInput, match="in PEM") as caught:
            config.load(tmp_path / "c")
        assert caught.value.field == field


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(InvalidInput, match=r"pip install 'headroom\[grpc\]'"):
        ExternalGrpcProvider(GrpcConfig("a:1"), ManualClock())


def test_the_library_is_loaded_when_a_provider_needs_it() -> None:
    program = "import sys, manager.autoscaler.cloudprovider.plugin; sys.exit('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


@given(st.binary(max_size=100))
def test_no_answer_breaks_a_reader(data: bytes) -> None:
    for read in READERS:
        with contextlib.suppress(Malformed):
            read(data)
