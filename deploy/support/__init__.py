"""`headroom support-bundle`: what a maintainer needs to see of a cluster, without its secrets."""
