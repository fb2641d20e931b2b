"""The autoscaler's part of the API."""
