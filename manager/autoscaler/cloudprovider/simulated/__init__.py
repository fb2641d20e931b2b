"""A cloud whose machines are Node objects alone, kwok's way: for local clusters, demonstrations and rehearsals."""

NAME = "simulated"
