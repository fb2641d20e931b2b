"""The messages of the external gRPC protocol and of the gRPC expander, and Kubernetes' Node and Pod, made with the
protobuf library.

Whoever speaks them here shares nothing with the product but the numbers of the fields.
"""

import re
from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

# By message: "number name type", where type may be "type[]" or "map:type", and enums are int32.
_PROTOCOL = {
    "Empty": "",
    "Seconds": "1 seconds int64, 2 nanos int32",
    "Anything": "1 type_url string, 2 value bytes",
    "NodeGroup": "1 id string, 2 minSize int32, 3 maxSize int32, 4 debug string",
    "ExternalGrpcNode": "1 providerID string, 2 name string, 3 labels map:string, 4 annotations map:string",
    "NodeGroups": "1 nodeGroups NodeGroup[]",
    "OfNode": "1 node ExternalGrpcNode",
    "OneGroup": "1 nodeGroup NodeGroup",
    "PricedNode": "1 node ExternalGrpcNode, 4 startTimestamp Seconds, 5 endTimestamp Seconds",
    "PricedPod": "4 pod_bytes bytes, 5 startTimestamp Seconds, 6 endTimestamp Seconds",
    "Price": "1 price double",
    "Label": "1 label string",
    "GpuTypes": "1 gpuTypes map:Anything",
    "OfGroup": "1 id string",
    "TargetSize": "1 targetSize int32",
    "Delta": "1 delta int32, 2 id string",
    "Deletion": "1 nodes ExternalGrpcNode[], 2 id string",
    "Instances": "1 instances Instance[]",
    "Instance": "1 id string, 2 status InstanceStatus",
    "InstanceStatus": "1 instanceState int32, 2 errorInfo ErrorInfo",
    "ErrorInfo": "1 errorCode string, 2 errorMessage string, 3 instanceErrorClass int32",
    "NodeInfo": "2 nodeBytes bytes",
    "OptionsOf": "1 id string, 2 defaults Options",
    "OptionsAnswer": "1 nodeGroupAutoscalingOptions Options",
    "Options": (
        "1 scaleDownUtilizationThreshold double, 2 scaleDownGpuUtilizationThreshold double,"
        "6 zeroOrMaxNodeScaling bool, 7 ignoreDaemonSetsUtilization bool, 8 scaleDownUnneededDuration Seconds,"
        "9 scaleDownUnreadyDuration Seconds, 10 maxNodeProvisionDuration Seconds"
    ),
    "Quantity": "1 string string",
    "ObjectMeta": "1 name string, 3 namespace string, 11 labels map:string, 12 annotations map:string",
    "Taint": "1 key string, 2 value string, 3 effect string",
    "NodeSpec": "3 providerID string, 4 unschedulable bool, 5 taints Taint[]",
    "NodeStatus": "1 capacity map:Quantity, 2 allocatable map:Quantity, 3 phase string",
    "Node": "1 metadata ObjectMeta, 2 spec NodeSpec, 3 status NodeStatus",
    "ResourceRequirements": "1 limits map:Quantity, 2 requests map:Quantity",
    "Container": "1 name string, 8 resources ResourceRequirements",
    "Toleration": "1 key string, 2 operator string, 3 value string, 4 effect string",
    "PodSpec": "2 containers Container[], 7 nodeSelector map:string, 22 tolerations Toleration[], 25 priority int32",
    "Pod": "1 metadata ObjectMeta, 2 spec PodSpec",
    "ExpanderOption": "1 nodeGroupId string, 2 nodeCount int32, 3 debug string, 5 podBytes Pod[]",
    "BestOptionsRequest": "1 options ExpanderOption[], 3 nodeBytesMap map:Node",
    "BestOptionsResponse": "1 options ExpanderOption[]",
}

METHODS = {
    "NodeGroups": ("Empty", "NodeGroups"),
    "NodeGroupForNode": ("OfNode", "OneGroup"),
    "PricingNodePrice": ("PricedNode", "Price"),
    "PricingPodPrice": ("PricedPod", "Price"),
    "GPULabel": ("Empty", "Label"),
    "GetAvailableGPUTypes": ("Empty", "GpuTypes"),
    "Cleanup": ("Empty", "Empty"),
    "Refresh": ("Empty", "Empty"),
    "NodeGroupTargetSize": ("OfGroup", "TargetSize"),
    "NodeGroupIncreaseSize": ("Delta", "Empty"),
    "NodeGroupDeleteNodes": ("Deletion", "Empty"),
    "NodeGroupDecreaseTargetSize": ("Delta", "Empty"),
    "NodeGroupNodes": ("OfGroup", "Instances"),
    "NodeGroupTemplateNodeInfo": ("OfGroup", "NodeInfo"),
    "NodeGroupGetOptions": ("OptionsOf", "OptionsAnswer"),
}

_SCALARS = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
}
_PACKAGE = "tests"
_FIELD = re.compile(r"\s*(\d+) (\w+) (map:)?(\w+)(\[\])?\s*")


def _field(message: DescriptorProto, number: int, name: str, kind: str, *, repeated: bool) -> None:
    field = message.field.add(name=name, number=number)
    field.label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{kind}"


def _classes() -> Mapping[str, type[Any]]:
    file = descriptor_pb2.FileDescriptorProto(name="tests.proto", package=_PACKAGE, syntax="proto3")
    for name, text in _PROTOCOL.items():
        message = file.message_type.add(name=name)
        for part in filter(None, text.split(",")):
            match = _FIELD.fullmatch(part)
            assert match, part
            number, field, is_map, kind, repeated = match.groups()
            if is_map:
                entry = message.nested_type.add(name=f"{field[0].upper()}{field[1:]}Entry")
                entry.options.map_entry = True
                _field(entry, 1, "key", "string", repeated=False)
                _field(entry, 2, "value", kind, repeated=False)
                kind = f"{name}.{entry.name}"
            _field(message, int(number), field, kind, repeated=bool(repeated or is_map))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _PROTOCOL
    }


CLASSES = _classes()  # by message name
