"""Launches: what the command lines and environments of several engines have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from anchormatrix.engines.base import Engine
from anchormatrix.errors import ConfigError, EngineError
from anchormatrix.records.form import Form
from anchormatrix.records.settings.things import EngineSettings
from anchormatrix.records.settings.values import DeviceKind

_ENV_PLACE = "{env}"
_LAST_PORT = 65535


def filled_command(command: Iterable[str], env: Mapping[str, str]) -> Iterator[str]:
    """The command before ``serve``; an element ``{env}`` becomes ``--env NAME=VALUE`` for every variable, since
    containers do not inherit the environment."""
    for part in command:
        if part == _ENV_PLACE:
            for name, value in env.items():
                yield from ("--env", f"{name}={value}")
        else:
            yield part


def require(engine: Engine, form: Form) -> None:
    """Raise :class:`EngineError` when the engine refuses the form."""
    if refusal := engine.refusal(form):
        raise EngineError(refusal, where=f"form {form.name}", todo="leave the form out of matrix.forms")


def ports_beside(port: int, count: int) -> tuple[int, ...]:
    """``count`` ports near a server's own for what it listens on besides; the next one is left to it."""
    first = port + 2 if port + 1 + count <= _LAST_PORT else port - 1 - count
    return tuple(range(first, first + count))


def refuse_options(engine: EngineSettings) -> None:
    """Refuse entries of a configuration file for an engine that is given none. Raises :class:`ConfigError`."""
    if engine.options:
        raise ConfigError(
            f"{engine.kind} reads no configuration file: {', '.join(engine.options)}",
            where="engine.options",
            todo="say it in engine.extra_args or engine.env",
        )


def collective_env(device: DeviceKind) -> dict[str, str]:
    """Variables of the device's collective library. HCCL's fixed ports collide when two groups of one host start in
    the same minute."""
    if device != DeviceKind.ASCEND:
        return {}
    return {"HCCL_HOST_SOCKET_PORT_RANGE": "auto", "HCCL_NPU_SOCKET_PORT_RANGE": "auto"}
