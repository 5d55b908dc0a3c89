"""Environments of their own for engines that run torch on this machine, made from pinned packages.

On a machine without an NVIDIA GPU a CUDA build of torch would be gigabytes of libraries that nothing uses, so a CPU
build is looked for first: under its own version (``+cpu``), then as the plain version where that is a CPU build (ARM),
then through uv, which knows where torch publishes its builds. Only when all of that fails does it stop and ask.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from anchormatrix.errors import EngineError, InputError

Run = Callable[[Sequence[str]], subprocess.CompletedProcess[str]]
BUILDS = ("auto", "cpu", "any")
_SOURCES = (".py", ".toml")
_CUDA_PARTS = ("nvidia-", "cuda-", "triton")


@dataclass(frozen=True)
class Recipe:
    """What an environment is made of.

    ``pins`` names every package and pins torch. With ``complete`` they are installed as they stand, without what they
    ask for: for a package that demands CUDA libraries which a CPU never loads. ``projects`` are folders of our own that
    are installed after them. ``check`` is a Python program that must run in the finished environment.
    """

    pins: Path
    check: str
    complete: bool = False
    projects: tuple[Path, ...] = ()

    def fingerprint(self) -> str:
        """A hash over everything that the environment is made from."""
        files = [path for project in self.projects for path in sorted(project.rglob("*")) if path.suffix in _SOURCES]
        parts = [self.pins.read_bytes(), *(path.read_bytes() for path in files if "build" not in path.parts)]
        return hashlib.sha256(b"\0".join(parts)).hexdigest()


def make_environment(directory: Path, recipe: Recipe, *, build: str, run: Run, say: Callable[[str], None]) -> bool:
    """Make or complete the environment in ``directory``; ``False`` when it is complete already.

    ``build`` is ``cpu`` (only a CPU build will do), ``any`` (whatever the package index gives) or ``auto`` (``any`` on
    a machine with an NVIDIA GPU, else ``cpu``). ``run`` runs a command and captures its output. Raises
    :class:`EngineError` with the installer's error line when something cannot be installed.
    """
    torch = torch_version(recipe.pins)
    wanted = f"{build} {recipe.fingerprint()}\n"
    stamp = directory / f"{recipe.pins.stem}.made"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return False
    python = directory / "bin" / "python"
    if not python.exists():
        say(f"making {directory}")
        _checked(run, [sys.executable, "-m", "venv", str(directory)], "the virtual environment cannot be made")
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    if build == "cpu" or (build == "auto" and not has_nvidia_gpu(run)):
        say(f"installing a CPU build of torch {torch}")
        _install_cpu_torch(pip, python, torch, run)
    say(f"installing {recipe.pins}")
    alone = ["--no-deps"] if recipe.complete else []
    _checked(run, [*pip, "install", *alone, "-r", str(recipe.pins)], "the pinned packages cannot be installed")
    for project in recipe.projects:
        _checked(
            run, [*pip, "install", "--no-deps", "--force-reinstall", str(project)], f"{project} cannot be installed"
        )
    say(_checked(run, [str(python), "-c", recipe.check], "the environment is incomplete").stdout.strip())
    stamp.write_text(wanted, encoding="utf-8")
    return True


def torch_version(pins: Path) -> str:
    """The pinned version of torch. Raises :class:`InputError` when the file has none."""
    for line in pins.read_text(encoding="utf-8").splitlines():
        name, pinned, version = line.partition("==")
        if pinned and name.strip() == "torch":
            return version.strip()
    raise InputError("torch is not pinned", where=str(pins), expected="a line such as torch==2.13.0")


def has_nvidia_gpu(run: Run) -> bool:
    """Whether ``nvidia-smi`` is there and lists a GPU."""
    tool = shutil.which("nvidia-smi")
    return tool is not None and "GPU " in run([tool, "-L"]).stdout


def quiet_run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command, output captured; a missing program is exit code 127."""
    try:
        return subprocess.run(list(argv), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except OSError as error:
        return subprocess.CompletedProcess(list(argv), 127, "", str(error))


def _install_cpu_torch(pip: list[str], python: Path, version: str, run: Run) -> None:
    if run([*pip, "install", f"torch=={version}+cpu"]).returncode == 0:
        return
    if not _brings_cuda(run([*pip, "install", "--dry-run", "--report", "-", f"torch=={version}"])):
        _checked(run, [*pip, "install", f"torch=={version}"], f"torch {version} cannot be installed")
        return
    if run([*pip, "install", "uv"]).returncode == 0:
        command = [str(python), "-m", "uv", "pip", "install", "--python", str(python)]
        if run([*command, "--torch-backend", "cpu", f"torch=={version}"]).returncode == 0:
            return
    raise EngineError(
        f"no CPU build of torch {version} is to be had from here",
        where=str(python.parent.parent),
        todo="point pip at an index with CPU builds (PIP_EXTRA_INDEX_URL), or accept a CUDA build with --build any",
    )


def _brings_cuda(planned: subprocess.CompletedProcess[str]) -> bool:
    """Whether pip's installation report holds CUDA libraries; a plan that failed is taken for one that does."""
    try:
        items = json.loads(planned.stdout)["install"]
        names = [item["metadata"]["name"].lower() for item in items]
    except (ValueError, KeyError, TypeError, AttributeError):
        return True
    return any(name.startswith(_CUDA_PARTS) for name in names)


def _checked(run: Run, argv: Sequence[str], what: str) -> subprocess.CompletedProcess[str]:
    done = run(argv)
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()] or ["no message"]
        errors = [line for line in lines if "error" in line.lower()] or lines
        raise EngineError(f"{what}: {errors[-1].strip()}", where=" ".join(argv[:4]))
    return done
