"""`headroom check`: what a cluster has for Headroom, lacks, or does not say, before and after an installation."""
