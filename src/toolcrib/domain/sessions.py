"""A session's mode. Data only."""

from enum import StrEnum


class Mode(StrEnum):
    """``plan``: look and write plans. ``build``: do what the agent may."""

    PLAN = "plan"
    BUILD = "build"
