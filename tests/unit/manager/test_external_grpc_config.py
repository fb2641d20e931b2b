"""The cloud-config of the external gRPC provider, and answers that are not the protocol's."""

import contextlib

from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from manager.autoscaler.cloudprovider.externalgrpc import core_v1, messages

READERS = (
    messages.read_groups,
    messages.read_group_of_node,
    messages.read_target_size,
    messages.read_price,
    messages.read_gpu_label,
    messages.read_gpu_types,
    messages.read_instances,
    messages.read_template,
    messages.read_options,
    core_v1.node,
)


@given(st.binary(max_size=100))
def test_no_answer_breaks_a_reader(data: bytes) -> None:
    for read in READERS:
        with contextlib.suppress(DecodeError):
            read(data)
