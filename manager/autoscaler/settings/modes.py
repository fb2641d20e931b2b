"""The extent to which the autoscaler may act on a group."""

import enum


class Mode(enum.StrEnum):
    """`observe`: the group is observed and priced, but not an option.

    `recommend`: it competes, and decisions about it are reported but not carried out. `enforce`: they are carried out.
    """

    OBSERVE = "observe"
    RECOMMEND = "recommend"
    ENFORCE = "enforce"
