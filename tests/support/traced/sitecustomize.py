"""Notes which files the commands of the rules open for reading: one JSON line each in the file $OPENED_FILES.

Python imports this module by itself when it starts, where its folder stands on $PYTHONPATH.
"""

import json
import os
import sys
from pathlib import Path

_COMMAND = sys.orig_argv[1:]
_LOG = os.environ.get("OPENED_FILES")


def _note(event, args):
    if event != "open" or not isinstance(args[0], str):
        return
    if args[2] & os.O_ACCMODE == os.O_WRONLY or args[2] & os.O_EXCL:  # a file made just now holds nothing to read
        return
    line = json.dumps({"command": _COMMAND, "file": str(Path(args[0]).absolute())}) + "\n"
    os.write(_log, line.encode())


if _LOG and _COMMAND and _COMMAND[0].startswith("scripts/rules/"):
    _log = os.open(_LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    sys.addaudithook(_note)
