"""The checks of what is served: the engine, the model's files, its figures, the memory of every form."""

from __future__ import annotations

from collections.abc import Iterator

from anchormatrix.devices.probe import read_version
from anchormatrix.doctor.lines import Line, failed, not_checked, ok, wrong
from anchormatrix.doctor.visit import Visit
from anchormatrix.engines.find import open_engine
from anchormatrix.errors import AnchorMatrixError
from anchormatrix.hosts.failures import missing_program
from anchormatrix.model_files.compare import Compared, compare
from anchormatrix.model_files.figures import read_figures
from anchormatrix.model_files.folder import ModelFolder
from anchormatrix.planning.configured import candidates_of, memory_limits
from anchormatrix.planning.memory import MEMORY_GATE, memory_of
from anchormatrix.records.form import Form
from anchormatrix.records.host import HostState

_VERSION_OF = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"


def engine(visit: Visit) -> Iterator[Line]:
    """Whether the engine is installed: its command is there, and its version is told by its own means."""
    settings, program = visit.settings, visit.settings.engine.command[0]
    try:
        version = read_version(visit.host, settings.engine.version, settings, "engine.version")
        found = visit.host.run(("sh", "-c", 'command -v -- "$1"', "sh", program), timeout_s=visit.limit_s, check=False)
        if found.returncode:
            raise missing_program(program, settings.host.alias, "of the host, with host.path")
        opened = open_engine(settings, version)
    except AnchorMatrixError as error:
        yield failed("engine", error, "install it there, or correct engine.command and engine.version")
        return
    stated = " (as the configuration states)" if isinstance(settings.engine.version, str) else ""
    if opened.caution:
        cure = "go on with it, and look twice at what the log told; or install a release that is known"
        yield wrong("engine", f"{opened.caution}{stated}", cure)
        return
    known = opened.limits().release
    yield ok("engine", f"{settings.engine.kind} {version}{stated}; which forms it can split is known of {known}")


def packages(visit: Visit) -> Iterator[Line]:
    """Whether the packages are there that the engine's arguments need, each with its version."""
    settings = visit.settings
    for name, why in open_engine(settings).packages().items():
        asked = (*settings.engine.python, "-c", _VERSION_OF, name)
        found = visit.host.run(asked, timeout_s=visit.limit_s, env=dict(settings.engine.env), check=False)
        if found.returncode:
            cure = f"install {name} beside the engine, or leave {why} out of engine.extra_args"
            yield wrong("packages", f"{why} needs {name}, which {settings.engine.python[0]} does not find", cure)
        else:
            yield ok("packages", f"{name} {found.stdout.strip()[:40]}, for {why}")


def model(visit: Visit) -> Iterator[Line]:
    """Whether the model's folder is there and all its files can be read."""
    folder, name = visit.folder, visit.settings.engine.model
    if not isinstance(folder, ModelFolder):
        yield failed("model", folder, "correct engine.python: it lists the files where the engine sees them")
    elif folder.path:
        unread = [f"{name} {problem}" for name, problem in folder.problems.items()]
        if folder.index.problem:
            unread.insert(0, f"model_index.json {folder.index.problem}")
        if unread:
            cure = "download it again, or correct engine.model: a folder in the layout of diffusers is expected"
            yield wrong("model", f"{folder.path}: {'; '.join(unread[:4])}", cure)
        else:
            total_gb = sum(file.bytes for file in folder.weights.values()) / 1e9
            yield ok("model", f"{folder.path}, {folder.index.kind}, {total_gb:.1f} GB in {len(folder.weights)} files")
    elif "/" not in name:
        yield not_checked("model", f"{name} is a name that only the engine knows")
    elif len(folder.looked) > 1:
        why = f"{name} is not in the Hub's cache ({folder.looked[-1]}): the engine will download it at its first start"
        yield not_checked("model", f"{why}; `hf download {name}` there does it now")
    else:
        yield wrong("model", f"{folder.looked[0]} is not there", "correct engine.model, or bring the model there")


def figures(visit: Visit) -> Iterator[Line]:
    """Whether the section ``model`` says what the model's files say."""
    folder, settings = visit.folder, visit.settings
    if not isinstance(folder, ModelFolder) or not folder.path:
        yield not_checked("figures", "the model's files were not read; the section model stands as it is")
        return
    found = read_figures(folder, settings.workload, settings.model.bytes_per_value)
    for one in compare(settings.model, found):
        yield _figure(one)
    if settings.model.activation_gb:
        yield not_checked("model.activation_gb", f"{settings.model.activation_gb:g}; no file tells it, a session does")


def _figure(one: Compared) -> Line:
    topic, figure = f"model.{one.figure.key}", one.figure
    if figure.value is None:
        return not_checked(topic, f"{_shown(one.configured)} is configured; {figure.missing}")
    if one.differs:
        text = f"{_shown(one.configured)} is configured, {figure.source} says {_shown(figure.value)}"
        return wrong(topic, text, f"set {topic} to {_shown(figure.value)}")
    return ok(topic, f"{_shown(one.configured)}, as {figure.source} says")


def memory(visit: Visit) -> Iterator[Line]:
    """What every form needs of a card; wrong where no form of a size fits."""
    state, settings = visit.state, visit.settings
    if not isinstance(state, HostState):
        yield not_checked("memory", "the vendor's tools did not tell the memory of the cards")
        return
    known = [card.hbm_total_mb for card in state.cards if card.hbm_total_mb]
    if not known:
        yield not_checked("memory", "the vendor's tools tell no memory of these cards")
        return
    card_gb = min(known) * 2**20 / 1e9
    limits = memory_limits(settings, card_gb)
    for size in settings.matrix.sizes:
        topic = f"memory of {size}"
        try:
            found = candidates_of(settings, size, card_gb=card_gb)
        except AnchorMatrixError as error:
            yield failed(topic, error, "correct matrix.forms")
            continue
        dropped = [out for out in found.excluded if not isinstance(settings.matrix.forms, str)]
        out = f"; left out: {'; '.join(f'{one.form.name}: {one.reason}' for one in dropped[:3])}" if dropped else ""
        if found.forms:
            needs = ", ".join(f"{form.name} {_gb(form, visit)}" for form in found.forms[:12])
            yield ok(topic, f"{needs} of {card_gb - limits.reserve_gb:.1f} GB usable per card{out}")
        else:
            tight_first = sorted(found.excluded, key=lambda one: one.source != MEMORY_GATE)
            why = next((f"{one.form.name} {one.reason}" for one in tight_first), "no form is asked for")
            cure = "use more cards, allow an offload (selection.offload_order), or correct the section model"
            yield wrong(topic, f"no form can run: {why}", cure)


def _gb(form: Form, visit: Visit) -> str:
    return f"{memory_of(form, visit.settings.model).total_gb:.1f} GB"


def _shown(value: float | bool) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else f"{value:g}" if value < 1e5 else f"{value}"
