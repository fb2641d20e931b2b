"""Tests of the manager wing without a cluster."""
