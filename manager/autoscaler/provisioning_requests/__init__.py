"""ProvisioningRequests: room for all pods of a group, promised and booked before the pods exist."""
