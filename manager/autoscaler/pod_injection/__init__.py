"""Pods that are planned for before they exist: chunks of CapacityBuffers, which come after all real pods, and the pods
of ProvisioningRequests, whose room is booked for all of them or none. Pod injection is Cluster Autoscaler's term.
"""
