"""Launches: what the command lines and environments of several engines have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from anchormatrix.errors import ConfigError
from anchormatrix.records.settings.things import EngineSettings
from anchormatrix.records.settings.values import DeviceKind

_ENV_PLACE = "{env}"


def filled_command(command: Iterable[str], env: Mapping[str, str]) -> Iterator[str]:
    """The command before ``serve``; an element ``{env}`` becomes ``--env NAME=VALUE`` for every variable, since
    containers do not inherit the environment."""
    for part in command:
        if part == _ENV_PLACE:
            for name, value in env.items():
                yield from ("--env", f"{name}={value}")
        else:
            yield part


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
