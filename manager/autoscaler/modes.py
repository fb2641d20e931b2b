"""How far the autoscaler may go with a group."""

import enum


class Mode(enum.StrEnum):
    """`observe`: it is watched and priced, and no option. `recommend`: it competes, and what is decided of it is told
    and not done. `enforce`: it is done.
    """

    OBSERVE = "observe"
    RECOMMEND = "recommend"
    ENFORCE = "enforce"
