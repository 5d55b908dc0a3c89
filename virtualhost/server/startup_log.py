"""What a server logs until it serves: the lines of vllm-omni 0.30.0 that tell of groups, splits, features and warm-up.

Paths below ``vllm_omni/``. Groups are built before a worker has its full name, so the lines on the sequence group bear
the plain one (``diffusion/worker/diffusion_worker.py:324-372``). Nothing prints the sizes of the tensor, CFG or
pipeline groups: only the names tell them.
"""

from __future__ import annotations

from collections.abc import Iterator

from virtualhost.host.split import Split
from virtualhost.server.grammar import Grammar
from virtualhost.server.in_effect import InEffect
from virtualhost.server.offload_log import Said, offload_lines
from virtualhost.server.pipelines import Options, Pipeline

_STATE, _WORKER, _RUNNER = "parallel_state.py", "diffusion_worker.py", "diffusion_model_runner.py"


def first_line(grammar: Grammar, clock_s: float, model: str) -> str:
    """The first line of the API server (``entrypoints/omni_base.py:208``)."""
    return grammar.written(grammar.api, clock_s, "omni_base.py:208", f"[AsyncOmni] Initializing with model {model}")


def group_lines(grammar: Grammar, clock_s: float) -> str:
    """The lines of every worker while it builds its groups."""
    executor = (
        ""
        if grammar.inline
        else grammar.written(grammar.api, clock_s, "multiproc_executor.py:372", "Starting server...")
    )
    return executor + "".join(
        grammar.written(grammar.fresh_worker(rank), clock_s, where, text)
        for rank in range(grammar.split.world)
        for where, text in _groups(grammar.split, rank)
    )


def _groups(split: Split, rank: int) -> Iterator[Said]:
    yield f"{_WORKER}:358", f"Worker {rank}: Initialized device and distributed environment."
    if split.ag > 1:  # diffusion/distributed/parallel_state.py:558-583 returns before it says anything
        return
    size = split.usp * split.ring
    degrees = f"(sp_size={size}, ulysses={split.usp}, ring={split.ring}, use_ulysses_low=True)"
    yield f"{_STATE}:610", f"Building SP subgroups from explicit sp_group_ranks {degrees}."
    mine = {kind: list(next(ranks for ranks in split.groups(kind) if rank in ranks)) for kind in ("sp", "usp", "ring")}
    members = f"sp_group={mine['sp']}, ulysses_group={mine['usp']}, ring_group={mine['ring']}"
    yield f"{_STATE}:652", f"SP group details for rank {rank}: {members}"


def split_lines(grammar: Grammar, clock_s: float, pipeline: Pipeline) -> str:
    """The lines of every worker on the split of the sequence; none where it is not split.

    ``diffusion/registry.py:562-631``: hooks go on every transformer with an ``_sp_plan``. Without one the groups stand,
    the names are right, and every rank computes the whole sequence.
    """
    split = grammar.split
    size = split.sequence_degree
    if size == 1:
        return ""
    mode = "ulysses" if split.usp > 1 else "ring"
    mode = "allgather_kv" if split.ag > 1 else "hybrid" if split.usp > 1 and split.ring > 1 else mode
    degrees = f"(sp_size={size}, mode={mode}, ulysses={split.usp}, ring={split.ring})"
    said = [
        ("registry.py:612", f"Applying sequence parallelism to {name} ({attribute}) {degrees}", "INFO")
        for attribute, name in pipeline.transformers
    ]
    if not said:
        text = (
            f"Sequence parallelism is enabled (sp_size={size}) but no transformer with _sp_plan found. "
            "SP hooks not applied. Consider adding _sp_plan to your transformer model."
        )
        said = [("registry.py:625", text, "WARNING")]
    return "".join(
        grammar.worker_line(rank, clock_s, where, text, level=level)
        for rank in range(split.world)
        for where, text, level in said
    )


def built_lines(grammar: Grammar, clock_s: float, options: Options, pipeline: Pipeline) -> str:
    """What workers say while they build the pipeline."""
    text = profiling_line(grammar, clock_s, options.profile_dir)
    text += patch_lines(grammar, clock_s, pipeline, options.patches)
    return text + split_lines(grammar, clock_s, pipeline)


def profiling_line(grammar: Grammar, clock_s: float, directory: str) -> str:
    """The line of the first worker when it makes its profiler (``profiler/omni_torch_profiler.py:73``)."""
    if not directory:
        return ""
    text = f"Omni torch profiling enabled. Traces will be saved to: {directory}"
    return grammar.worker_line(0, clock_s, "omni_torch_profiler.py:73", text)


def patch_lines(grammar: Grammar, clock_s: float, pipeline: Pipeline, patches: int) -> str:
    """The lines of every worker on a VAE that is to be shared among ranks (``diffusion/registry.py:469-481``): it tiles
    from then on, or goes on alone."""
    size = f"vae_patch_parallel_size={patches}"
    where, level = "registry.py:476", "INFO"
    text = f"{size} requires vae_use_tiling; automatically enabling it."
    if not pipeline.patches:
        where, level = "registry.py:470", "WARNING"
        text = f"{size} is set but VAE patch parallelism is NOT enabled for {pipeline.name}; ignoring."
    ranks = range(grammar.split.world if patches > 1 else 0)
    return "".join(grammar.worker_line(rank, clock_s, where, text, level=level) for rank in ranks)


def profiler_lines(grammar: Grammar, clock_s: float, pipeline: Pipeline) -> str:
    """The warnings of every worker about targets that the pipeline lacks
    (``diffusion/profiler/diffusion_pipeline_profiler.py:69``)."""
    return "".join(
        grammar.worker_line(
            rank,
            clock_s,
            "diffusion_pipeline_profiler.py:69",
            f"[DiffusionPipelineProfiler] Method path {path} not found",
            level="WARNING",
        )
        for rank in range(grammar.split.world)
        for path in pipeline.absent
    )


def loaded_lines(
    grammar: Grammar, clock_s: float, options: Options, form: InEffect, layers: int, *, stages: bool
) -> str:
    """What workers and engine say from the weights to the warm-up, for a transformer of so many layers."""
    gib, dead = form.memory.weights_gb * 1e9 / 2**30, form.dead_offload
    text = profiler_lines(grammar, clock_s, form.pipeline) if stages else ""
    took = f"Model loading took {gib:.4f} GiB and 21.804113 seconds"
    said = ((f"{_RUNNER}:352", took), (f"{_RUNNER}:358", "Model runner: Model loaded successfully."))
    text += _of_all(grammar, clock_s, said)
    if dead is None or dead.logged:
        text += offload_text(grammar, clock_s, layers)
    else:
        text += refused_offload(grammar, clock_s, dead.text)
    text += "" if options.eager else uncompiled_lines(grammar, clock_s)
    text += cache_lines(grammar, clock_s, form.pipeline, options.cache) + initialized_lines(grammar, clock_s)
    return text + engine_lines(grammar, clock_s, stepwise=options.stepwise, warm=bool(form.pipeline.warm_frames))


def offload_text(grammar: Grammar, clock_s: float, layers: int) -> str:
    """What every worker says of its offload, for a transformer of so many layers."""
    said = ((rank, *one) for rank in range(grammar.split.world) for one in offload_lines(grammar.split, layers, rank))
    return "".join(grammar.worker_line(rank, clock_s, where, text) for rank, where, text in said)


def refused_offload(grammar: Grammar, clock_s: float, text: str) -> str:
    """The same warning of every worker instead; nothing for an empty one (``diffusion/offloader/__init__.py:123``)."""
    ranks = range(grammar.split.world if text else 0)
    return "".join(grammar.worker_line(rank, clock_s, "__init__.py:123", text, level="WARNING") for rank in ranks)


def uncompiled_lines(grammar: Grammar, clock_s: float) -> str:
    """The warning of every worker on an NPU unless ``--enforce-eager`` (``platforms/npu/platform.py:292``,
    ``diffusion_model_runner.py:402``)."""
    return "".join(
        grammar.worker_line(
            rank,
            clock_s,
            f"{_RUNNER}:402",
            f"Model runner: Platform npu:{rank} does not support torch inductor, skipping torch.compile.",
            level="WARNING",
        )
        for rank in range(grammar.split.world)
    )


def cache_lines(grammar: Grammar, clock_s: float, pipeline: Pipeline, backend: str) -> str:
    """The lines of every worker on its cache of parts of steps, with the defaults of ``diffusion/data.py:599-630``
    (``diffusion/cache/cachedit/backend.py:168`` and ``:309``, ``teacache/backend.py:194``). Here no step finds anything
    in it: a cache may be enabled and never hit.
    """
    said: tuple[Said, ...] = ()
    if backend == "cache_dit":
        said = (
            ("backend.py:168", "Enabling cache-dit on transformer: Fn=1, Bn=0, W=4"),
            ("backend.py:309", f"Cache-dit enabled successfully on {pipeline.name}"),
        )
    elif backend == "tea_cache":
        name = pipeline.transformers[0][1] if pipeline.transformers else pipeline.name
        said = (("backend.py:194", f"TeaCache applied with rel_l1_thresh=0.2, transformer_class={name}"),)
    return _of_all(grammar, clock_s, said)


def initialized_lines(grammar: Grammar, clock_s: float) -> str:
    """The lines of every worker when it is ready; a rank's number stands beside its name here alone.

    ``diffusion_model_runner.py:449``, ``diffusion_worker.py:316`` and, of a process of its own, ``:1642``.
    """
    text = ""
    for rank in range(grammar.split.world):
        text += grammar.worker_line(rank, clock_s, f"{_RUNNER}:449", "Model runner: Initialization complete.")
        text += grammar.worker_line(rank, clock_s, f"{_WORKER}:316", f"Worker {rank}: Initialization complete.")
        if not grammar.inline:
            text += grammar.worker_line(rank, clock_s, f"{_WORKER}:1642", f"Worker {rank}: Scheduler loop started.")
    if grammar.inline:
        text += grammar.line(
            clock_s, "uniproc_executor.py:74", "Diffusion worker initialized in-process (uniproc executor)"
        )
    return text


def engine_lines(grammar: Grammar, clock_s: float, *, stepwise: bool, warm: bool) -> str:
    """The engine's lines before its warm-up (``diffusion/diffusion_engine.py:430`` and ``:1421``); the first says that
    requests are run whole, and stepwise execution has no line of its own."""
    text = ""
    if not stepwise:
        batch = "[RequestBatch] engine init max_num_seqs=1 max_wait_ms=0.0"
        text += grammar.line(clock_s, "diffusion_engine.py:430", batch)
    warmed = "dummy run to warm up the model" if warm else "Skipping dummy warmup run (num_frames=0)"
    return text + grammar.line(clock_s, f"diffusion_engine.py:{1421 if warm else 1419}", warmed)


def serving_lines(grammar: Grammar, clock_s: float, options: Options, port: int) -> str:
    """The API server's last lines before it listens (``entrypoints/openai/api_server.py:363``, ``:373``, ``:864``) and
    uvicorn's own."""
    model = f"Pure diffusion API server initialized for model: {options.model}"
    text = grammar.line(clock_s, "api_server.py:864", model)
    if options.profile_dir:
        warning = "Profiler endpoints are enabled. This should ONLY be used for local development!"
        text += grammar.line(clock_s, "api_server.py:363", warning, level="WARNING")
    url = f"Starting vLLM API server (pure diffusion mode) on http://127.0.0.1:{port}"
    text += grammar.line(clock_s, "api_server.py:373", url)
    said = ("Waiting for application startup", "Application startup complete")
    return text + "".join(grammar.plain(f"INFO:     {line}.") for line in said)


def _of_all(grammar: Grammar, clock_s: float, said: tuple[Said, ...]) -> str:
    return "".join(
        grammar.worker_line(rank, clock_s, where, text) for rank in range(grammar.split.world) for where, text in said
    )
