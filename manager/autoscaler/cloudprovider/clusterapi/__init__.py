"""Cluster API as a cloud: groups are MachineDeployments, MachinePools and MachineSets that ask for an autoscaler."""

NAME = "clusterapi"
