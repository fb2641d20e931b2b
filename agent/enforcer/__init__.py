"""Keeps pods of Mid and Batch within their bounds by writing to their cgroups: opt-in, in a container of its own.

The agent writes to a file what pods hold. This process, root without capabilities, derives the values itself and writes
only those. It loads no Kubernetes client and needs no network.
"""
