"""A cloud behind gRPC: package `clusterautoscaler.cloudprovider.v1.externalgrpc`."""

NAME = "externalgrpc"
