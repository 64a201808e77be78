"""What can go wrong between an agent and the environment, each with its HTTP status."""

from __future__ import annotations

from vclib.errors import VclibError


class EnvError(VclibError):
    """A call that the environment refuses; `status` is what the server answers with."""

    status = 400


class BadArguments(EnvError):
    """An argument that the environment cannot take."""

    status = 422


class UnknownSession(EnvError):
    """A session id that was never given out, or was closed."""

    status = 404


class SessionExpired(EnvError):
    """A session that nobody used for too long."""

    status = 410


class EpisodeDone(EnvError):
    """A step after the last one."""

    status = 409


class TooLarge(EnvError):
    """HTML, or a request body, beyond the limit."""

    status = 413


class TooManySessions(EnvError):
    """All sessions are in use."""

    status = 429


class EnvironmentFault(EnvError):
    """The environment itself failed: no browser, or no server. Nothing was scored."""

    status = 503


ERRORS = {
    kind.__name__: kind
    for kind in (
        EnvError,
        BadArguments,
        UnknownSession,
        SessionExpired,
        EpisodeDone,
        TooLarge,
        TooManySessions,
        EnvironmentFault,
    )
}
"""By name, so that a client raises what its server raised."""
