"""The cloud-config of the external gRPC provider, and answers that are not the protocol's."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from manager.autoscaler.cloudprovider.externalgrpc import core_v1, messages
from shared.protobuf import Malformed

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


@given(st.binary(max_size=100))
def test_no_answer_breaks_a_reader(data: bytes) -> None:
    for read in READERS:
        with contextlib.suppress(Malformed):
            read(data)
