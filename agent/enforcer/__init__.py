"""Keeps pods of Mid and Batch within their bounds by writing to their cgroups: opt-in, in a container of its own.

The agent says in a file what pods hold; the process here, root without capabilities, derives the values itself and
writes nothing else. It loads no Kubernetes client and needs no network.
"""
