"""What can be seen of a host before it has a configuration: its tools, engines and cards, the models stored there."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from anchormatrix.devices.open import open_device
from anchormatrix.errors import AnchorMatrixError, ConfigError
from anchormatrix.hosts.open import open_host
from anchormatrix.records.settings.things import DeviceSettings, HostSettings, SshSettings
from anchormatrix.records.settings.values import DeviceKind, HostKind

LIMIT_S = 30.0
LOCAL = "local"
TOOLS = {DeviceKind.ASCEND: "npu-smi", DeviceKind.NVIDIA: "nvidia-smi"}
COMMANDS = {"vllm-omni": "vllm", "sglang": "sglang"}
_PLACES = ("/usr/local/bin", "/usr/local/sbin", "/usr/local/Ascend/driver/tools", "/opt/vllm/bin")
_LOOK = """
uname -n
for tool in npu-smi nvidia-smi vllm sglang; do
  found=$(PATH="$PATH:$1" command -v "$tool") || continue
  echo "tool $tool $found"
  [ -x "$(dirname "$found")/python3" ] && echo "python $tool $(dirname "$found")/python3"
done
hub=${HF_HUB_CACHE:-${HUGGINGFACE_HUB_CACHE:-${HF_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/huggingface}/hub}}
for index in "$hub"/models--*/snapshots/*/model_index.json; do [ -e "$index" ] && echo "model - $index"; done
for file in /usr/local/Ascend/ascend-toolkit/latest/*-linux/ascend_toolkit_install.info; do
  [ -e "$file" ] && echo "toolkit - $file"
done
exit 0
"""


@dataclass(frozen=True)
class Detected:
    """What a host shows: its name, the paths of programs by name, Pythons beside them, models in the Hub's cache."""

    name: str
    tools: Mapping[str, str] = field(default_factory=dict)
    pythons: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    toolkit_info: str = ""

    @property
    def device(self) -> DeviceKind:
        """The kind of cards, by the vendor's tool; a CPU without any."""
        return next((kind for kind, tool in TOOLS.items() if tool in self.tools), DeviceKind.CPU)

    @property
    def engine(self) -> str:
        """The first engine whose command is there; vllm-omni otherwise."""
        return next((kind for kind, command in COMMANDS.items() if command in self.tools), "vllm-omni")


def host_settings(where: str, alias: str) -> HostSettings:
    """The host that a word names: ``local``, or ``[user@]host[:port]`` over SSH. Raises :class:`ConfigError`."""
    if where == LOCAL:
        return HostSettings(alias)
    user, _, rest = where.rpartition("@")
    name, _, port = rest.partition(":")
    if not name or any(not char.isprintable() or char.isspace() for char in where) or (port and not port.isdigit()):
        raise ConfigError(f"{where!r} is no host", where="--host", expected="local, or [user@]host[:port]")
    given = {"host": name, **({"user": user} if user else {}), **({"port": int(port)} if port else {})}
    try:
        ssh = msgspec.convert(given, SshSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error), where="--host", expected="local, or [user@]host[:port]") from None
    return HostSettings(alias, kind=HostKind.SSH, ssh=ssh)


def detect(settings: HostSettings) -> Detected:
    """Look round on a host: one command, nothing is changed. Raises :class:`HostError` when it cannot be reached."""
    host = open_host(settings)
    try:
        said = host.run(("sh", "-c", _LOOK, "sh", ":".join(_PLACES)), timeout_s=LIMIT_S).stdout
    finally:
        host.close()
    return parse_look(said)


def parse_look(said: str) -> Detected:
    """What the look printed: the host's name, then a line for each thing found."""
    lines = said.splitlines()
    name = "".join(char for char in (lines[0] if lines else "") if char.isprintable())[:60]
    words = [line.split(" ", 2) for line in lines[1:] if line.isprintable()]
    rows = [row for row in words if len(row) == 3]
    models = [parts[0] for row in rows if row[0] == "model" for parts in [_hub_name(row[2])] if parts]
    return Detected(
        name=name or "my-host",
        tools={row[1]: row[2] for row in rows if row[0] == "tool"},
        pythons={row[1]: row[2] for row in rows if row[0] == "python"},
        models=tuple(dict.fromkeys(models)),
        toolkit_info=next((row[2] for row in rows if row[0] == "toolkit"), ""),
    )


def count_cards(settings: HostSettings, device: DeviceSettings) -> int | None:
    """How many cards the vendor's tool shows; None when it cannot tell."""
    host = open_host(settings)
    try:
        return len(open_device(device).read(host, timeout_s=LIMIT_S).cards)
    except AnchorMatrixError:
        return None
    finally:
        host.close()


def size_for(cards: int | None) -> int:
    """The largest power of two among so many cards, which a first run measures; eight where they are not known."""
    return 1 << (cards.bit_length() - 1) if cards else 8


def folders_of(tools: Sequence[str]) -> list[str]:
    """The folders of some programs, each once."""
    return list(dict.fromkeys(posixpath.dirname(tool) for tool in tools))


def _hub_name(index: str) -> list[str]:
    """The name of a model in the Hub's cache, by the path of its ``model_index.json``."""
    parts = [part for part in index.split("/") if part.startswith("models--") and part.count("--") >= 2]
    return ["/".join(parts[-1].removeprefix("models--").split("--", 1))] if parts else []
