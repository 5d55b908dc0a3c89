"""One verified SSH connection: keys and agent only, host keys checked, through a jump host where one is given."""

from __future__ import annotations

import base64
import getpass
import hashlib
import socket
from pathlib import Path
from typing import Any

import paramiko

from anchormatrix.errors import HostError
from anchormatrix.records.settings.things import SshSettings

_SYSTEM_KNOWN_HOSTS = Path("/etc/ssh/ssh_known_hosts")
_WINDOW = 1 << 26
_KEEPALIVE_S = 10


class Connection:
    """An authenticated transport and the connections it runs through."""

    def __init__(self, client: paramiko.SSHClient, through: Connection | None) -> None:
        self._client = client
        self._through = through
        transport = client.get_transport()
        assert transport is not None
        self.transport = transport
        transport.set_keepalive(_KEEPALIVE_S)

    @property
    def alive(self) -> bool:
        """Whether it still works, as far as is known."""
        return self.transport.is_active()

    def close(self) -> None:
        """Disconnect, the jump host last."""
        self._client.close()
        if self._through:
            self._through.close()


def connect(settings: SshSettings) -> Connection:
    """Connect and authenticate.

    Raises :class:`HostError` for a host that cannot be reached, a host key that is unknown or has changed, and keys
    that are refused; each says what to do.
    """
    through = connect(settings.jump) if settings.jump else None
    try:
        return Connection(_client(settings, _socket(settings, through)), through)
    except BaseException:
        if through:
            through.close()
        raise


def _where(settings: SshSettings) -> str:
    return f"{settings.user or getpass.getuser()}@{settings.host}:{settings.port}"


def _socket(settings: SshSettings, through: Connection | None) -> Any:
    try:
        if through:
            return through.transport.open_channel(
                "direct-tcpip", (settings.host, settings.port), ("127.0.0.1", 0), timeout=settings.connect_timeout_s
            )
        plain = socket.create_connection((settings.host, settings.port), timeout=settings.connect_timeout_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return plain
    except (OSError, paramiko.SSHException) as error:
        via = f" through {settings.jump.host}" if settings.jump else ""
        raise HostError(
            f"cannot be reached{via} ({error})",
            where=_where(settings),
            todo=f"check host.ssh and try `ssh -p {settings.port} {_where(settings).rpartition(':')[0]}`",
        ) from None


def _client(settings: SshSettings, sock: Any) -> paramiko.SSHClient:
    client = paramiko.SSHClient()
    known_hosts = Path(settings.known_hosts).expanduser()
    try:
        for path in (_SYSTEM_KNOWN_HOSTS, known_hosts):
            if path.exists():
                client.load_system_host_keys(str(path))
    except (OSError, paramiko.SSHException) as error:
        raise HostError(f"cannot be read ({error})", where=str(known_hosts), todo="correct it") from None
    client.set_missing_host_key_policy(_Refuse(settings, known_hosts))
    try:
        client.connect(
            settings.host,
            port=settings.port,
            username=settings.user or getpass.getuser(),
            key_filename=str(Path(settings.key_file).expanduser()) if settings.key_file else None,
            look_for_keys=settings.key_file is None,
            timeout=settings.connect_timeout_s,
            banner_timeout=settings.connect_timeout_s,
            auth_timeout=settings.connect_timeout_s,
            sock=sock,
            transport_factory=_transport,
        )
    except BaseException as error:
        client.close()
        if isinstance(error, HostError) or not isinstance(
            error, (paramiko.SSHException, OSError, EOFError, ValueError)
        ):
            raise
        raise _refusal(settings, known_hosts, error) from None
    return client


def _transport(sock: Any, **options: Any) -> paramiko.Transport:
    transport = paramiko.Transport(sock, default_window_size=_WINDOW, **options)
    choice = transport.get_security_options()
    fast = [name for name in choice.ciphers if "gcm" in name]  # encrypts and authenticates in one go: captures are big
    choice.ciphers = tuple(fast + [name for name in choice.ciphers if name not in fast])
    return transport


def _refusal(settings: SshSettings, known_hosts: Path, error: Exception) -> HostError:
    where = _where(settings)
    if isinstance(error, paramiko.BadHostKeyException):
        return HostError(
            f"the host's key has CHANGED: it is {_fingerprint(error.key)}, "
            f"{known_hosts} has {_fingerprint(error.expected_key)}",
            where=where,
            todo="refused. Ask the host's administrator whether the new key is right; only then remove the old one by "
            f"`ssh-keygen -f {known_hosts} -R {_known_name(settings)}` and add the new one",
        )
    if isinstance(error, paramiko.PasswordRequiredException):
        return HostError(
            "the key file is locked with a passphrase", where=where, todo="add it to ssh-agent with `ssh-add`"
        )
    if isinstance(error, paramiko.AuthenticationException):
        return HostError(
            "the host refused our keys",
            where=where,
            todo=f"try `ssh -p {settings.port} {where.rpartition(':')[0]}`; set host.ssh.user and host.ssh.key_file, "
            "or add the key to ssh-agent (passwords are not used)",
        )
    if isinstance(error, FileNotFoundError):
        return HostError("no such key file", where=str(settings.key_file), todo="correct host.ssh.key_file")
    return HostError(f"no SSH connection ({error or type(error).__name__})", where=where, todo="check host.ssh")


class _Refuse(paramiko.MissingHostKeyPolicy):
    """A host whose key is not known is not talked to."""

    def __init__(self, settings: SshSettings, known_hosts: Path) -> None:
        self._settings = settings
        self._known_hosts = known_hosts

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        settings = self._settings
        raise HostError(
            f"the host's key is not known: {key.get_name()} {_fingerprint(key)}",
            where=_where(settings),
            todo=f"refused. Compare that fingerprint with the administrator's, then add the key: `ssh-keyscan -p "
            f"{settings.port} {settings.host} >> {self._known_hosts}`",
        )


def _known_name(settings: SshSettings) -> str:
    return settings.host if settings.port == 22 else f"'[{settings.host}]:{settings.port}'"


def _fingerprint(key: paramiko.PKey) -> str:
    return "SHA256:" + base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
