"""Errors that a user sees as one sentence."""


class VclibError(Exception):
    """What was wrong, what was expected, and what to do; shown without a traceback."""
