"""A whole cluster on one virtual clock: managers, agents, API server, scheduler, kubelets, cloud and users in one
thread.

`python -m tests.simulation --seed N` replays what a seed does. Importing `virtual` and `stand_ins` must come before the
first import of the product, so every run is a process of its own.
"""
