"""Karpenter as a cloud: nodes are bought and given back as NodeClaims, wherever Karpenter has a provider."""

NAME = "karpenter"
