"""The start of the supervision agent: its source is handed to a bare Python, here and over SSH alike.

Nothing is installed and no file is left on the host; the interpreter there needs to know nothing of this project.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

_MODULES = ("lease_folder.files", "lease_folder.notes", "locks", "processes", "agent")
_LOADER = """# supervision agent of anchormatrix
import json, os, sys, types
size, text = %d, b""
while len(text) < size:
    more = os.read(0, size - len(text))
    if not more:
        sys.exit(3)
    text += more
for name, source in json.loads(text):
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = []
    exec(compile(source, name, "exec"), module.__dict__)
sys.exit(module.main(sys.argv[1:]))
"""


@cache
def _sources() -> bytes:
    here = Path(__file__).parent
    packages = [("anchormatrix", ""), ("anchormatrix.hosts", ""), ("anchormatrix.hosts.lease_folder", "")]
    paths = {name: here / f"{name.replace('.', '/')}.py" for name in _MODULES}
    modules = [(f"anchormatrix.hosts.{name}", path.read_text(encoding="utf-8")) for name, path in paths.items()]
    return json.dumps(packages + modules).encode()


def agent_command(python: str, silence_s: float = 0, *words: str) -> tuple[Sequence[str], bytes]:
    """The words that start an agent under a Python of a host, and what must come first on its stdin.

    ``silence_s`` is how long the agent goes on without a word from here; 0 is for ever, where the end of its stdin is
    sure to be seen. The agent greets with each of ``words`` reversed, a line each, before it answers anything.
    """
    return (python, "-E", "-S", "-c", _LOADER % len(_sources()), str(silence_s), *words), _sources()
