"""Kubernetes objects as typed structs that hold only the fields the product reads."""
