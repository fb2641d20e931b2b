"""The generated modules of the gRPC protocols are those of their .proto files."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

from manager.autoscaler.cloudprovider.externalgrpc.wire import core_v1_pb2, expander_pb2, externalgrpc_pb2
from tests.support.apiserver import ROOT

_NAMES = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_DOUBLE: "double",
}


def _type(field: FieldDescriptor) -> str:
    of = field.message_type
    if of is None:
        return _NAMES[field.type]
    return of.full_name if of.full_name.startswith("google.") else of.name


def _field(field: FieldDescriptor) -> str:
    of = field.message_type
    if of is not None and of.GetOptions().map_entry:
        value = of.fields_by_name["value"]
        return f"map<string, {_type(value)}> {field.name} = {field.number};"
    optional = "optional " if field.has_presence and of is None else ""
    label = "repeated " if field.is_repeated else optional
    return f"{label}{_type(field)} {field.name} = {field.number};"


def _lines(file: FileDescriptor) -> Iterator[str]:
    yield 'syntax = "proto3";'
    yield f"package {file.package};"
    yield from (f'import "{each.name}";' for each in file.dependencies)
    messages: list[Descriptor] = list(file.message_types_by_name.values())
    for message in messages:
        yield f"message {message.name} {{"
        yield from map(_field, message.fields)
        yield "}"


@pytest.mark.parametrize(
    "file",
    [core_v1_pb2.DESCRIPTOR, expander_pb2.DESCRIPTOR, externalgrpc_pb2.DESCRIPTOR],
    ids=lambda each: Path(each.name).stem,
)
def test_a_generated_module_has_every_message_and_field_of_its_file_and_no_other(file: FileDescriptor) -> None:
    written = re.sub(r"//.*", "", (ROOT / file.name).read_text())
    assert [line.strip() for line in written.splitlines() if line.strip()] == list(_lines(file)), "run: make protos"
