"""Messages of the external gRPC protocol, of the gRPC expander and of Kubernetes, as `make protos` generates them from
the .proto files. Only what speaks gRPC imports them, because they need the extra `grpc`.
"""

try:
    from manager.autoscaler.cloudprovider.externalgrpc import core_v1_pb2, expander_pb2, externalgrpc_pb2
except ImportError as error:
    raise ImportError("it needs grpcio and protobuf: pip install 'headroom-k8s[grpc]'") from error

__all__ = ["core_v1_pb2", "expander_pb2", "externalgrpc_pb2"]
