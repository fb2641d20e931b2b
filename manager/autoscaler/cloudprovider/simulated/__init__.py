"""A cloud whose machines are only Node objects, as in kwok: for local clusters, demonstrations and rehearsals."""

NAME = "simulated"
