"""Bytecode is kept, whatever the environment says: tests start the same modules in hundreds of processes."""

from __future__ import annotations

import os
import sys

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
