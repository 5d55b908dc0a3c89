"""The start of a tool in ``bin/``. Kept free of newer syntax: the first ``python3`` on PATH may be any."""

import importlib
import os
import sys


def launch(module):  # type: ignore[no-untyped-def]
    """Run ``main`` of a module and leave with its exit status.

    When the interpreter found on PATH is too old or has no PyYAML, the project's own environment is used instead.
    """
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    own = os.path.join(root, ".venv", "bin", "python")  # noqa: PTH118
    if not _suitable() and os.path.exists(own) and "VIRTUALHOST_REEXEC" not in os.environ:  # noqa: PTH110
        os.environ["VIRTUALHOST_REEXEC"] = "1"
        os.execv(own, [own, *sys.argv])
    os.environ.pop("VIRTUALHOST_REEXEC", None)
    sys.exit(importlib.import_module("virtualhost." + module).main(sys.argv[1:]))


def _suitable():  # type: ignore[no-untyped-def]
    if sys.version_info < (3, 11):  # noqa: UP036 - the point of this function
        return False
    try:
        importlib.import_module("yaml")
    except ImportError:
        return False
    return True
