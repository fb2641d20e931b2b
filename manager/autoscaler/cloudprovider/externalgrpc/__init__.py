"""A cloud that is asked over gRPC: package `clusterautoscaler.cloudprovider.v1.externalgrpc`."""

NAME = "externalgrpc"
