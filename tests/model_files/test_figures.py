"""The figures of real models as their own files tell them: layers, heads, tokens, branches, weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from model_folders import MODELS, WAN, write_json, write_model, write_weights

from anchormatrix.errors import HostError
from anchormatrix.model_files.collect import collect
from anchormatrix.model_files.compare import compare
from anchormatrix.model_files.figures import Figures, read_figures
from anchormatrix.model_files.folder import parse_folder
from anchormatrix.records.settings.things import ModelSettings, WorkloadSettings


def figures(folder: Path, *, bytes_per_value: float = 2, **workload) -> Figures:
    asked = {"endpoint": "video", "prompt": "a cliff", "width": 1024, "height": 1024, **workload}
    return read_figures(parse_folder(json.dumps(collect(str(folder)))), WorkloadSettings(**asked), bytes_per_value)


@pytest.mark.parametrize(
    ("name", "asked", "layers", "heads", "head_dim", "ffn", "tokens", "branches"),
    [
        ("wan2.1-14b", (832, 480, 81, 5.0), 40, 40, 128, 13824, 32760, 2),
        ("wan2.2-a14b", (832, 480, 81, 1.0), 40, 40, 128, 13824, 32760, 1),
        ("wan2.1-14b", (832, 480, 80, 5.0), 40, 40, 128, 13824, 32760, 2),  # the pipeline renders 81
        ("wan2.2-5b", (1280, 704, 121, 5.0), 30, 24, 128, 14336, 27280, 2),
        ("qwen-image", (1328, 1328, 1, 4.0), 60, 24, 128, 12288, 6889, 1),
        ("flux.1", (1024, 1024, 1, 3.5), 57, 24, 128, 12288, 4096, 1),
        ("flux.2", (1024, 1024, 1, 4.0), 56, 48, 128, 18432, 4096, 1),
        ("hunyuan-video", (1280, 720, 129, 6.0), 60, 24, 128, 12288, 118800, 1),
        ("z-image", (1024, 1024, 1, 0.0), 30, 30, 128, 10240, 4096, 1),
        ("z-image", (1040, 1008, 1, 5.0), 30, 30, 128, 10240, 4096, 2),  # 65 × 63 = 4095, filled up
        ("ltx", (704, 480, 161, 3.0), 28, 32, 64, 8192, 6930, 2),
        ("sd3", (1024, 1024, 1, 7.0), 24, 24, 64, 6144, 4096, 2),
        ("pixart-sigma", (1024, 1024, 1, 4.5), 28, 16, 72, 4608, 4096, 2),
        ("sana", (1024, 1024, 1, 4.5), 20, 70, 32, 5600, 1024, 2),
        ("cogvideox-5b", (720, 480, 49, 6.0), 42, 48, 64, 12288, 17550, 2),
        ("cogvideox-1.5", (1360, 768, 81, 6.0), 42, 48, 64, 12288, 44880, 2),  # 21 latent frames, 11 patches
        ("mochi", (848, 480, 163, 4.5), 48, 24, 128, 8192, 44520, 2),
    ],
)
def test_what_the_files_of_a_model_tell(tmp_path, name, asked, layers, heads, head_dim, ffn, tokens, branches):
    width, height, frames, scale = asked
    write_model(tmp_path, MODELS[name])
    found = figures(tmp_path, width=width, height=height, frames=frames, guidance_scale=scale).found
    assert (found["layers"], found["heads"], found["kv_heads"], found["head_dim"]) == (layers, heads, heads, head_dim)
    assert (found["ffn_dim"], found["sequence_tokens"], found["guidance_branches"]) == (ffn, tokens, branches)


@pytest.mark.parametrize("name", MODELS)
def test_every_figure_of_a_known_model_is_found(tmp_path, name):
    missing = [figure.missing for figure in figures(write_model(tmp_path, MODELS[name])) if figure.missing]
    assert missing == []


def test_a_true_guidance_scale_with_a_negative_prompt_is_a_second_branch(tmp_path):
    write_model(tmp_path, MODELS["qwen-image"])
    assert figures(tmp_path, negative_prompt="blurred").found["guidance_branches"] == 2
    asked = {"negative_prompt": "blurred", "extra_params": {"true_cfg_scale": 1}}
    assert figures(tmp_path, **asked).found["guidance_branches"] == 1


def test_text_attended_to_apart(tmp_path):
    assert figures(write_model(tmp_path / "wan", MODELS["wan2.1-14b"])).found["cross_attention"] is True
    assert figures(write_model(tmp_path / "flux", MODELS["flux.1"])).found["cross_attention"] is False


# --- weights ----------------------------------------------------------------------------------------------------------


def test_weights_are_counted_over_the_shards_and_served_in_two_bytes(tmp_path):
    write_model(tmp_path, MODELS["wan2.2-a14b"])
    for part in ("transformer", "transformer_2"):
        (tmp_path / part / "diffusion_pytorch_model.safetensors").unlink()
        for shard in (1, 2):
            write_weights(tmp_path / part / f"part-{shard}.safetensors", {"w": ("F32", [7000, 1_000_000])})
        shards = {"a": "part-1.safetensors", "b": "part-2.safetensors"}
        write_json(tmp_path / part / "diffusion_pytorch_model.safetensors.index.json", {"weight_map": shards})
    found = figures(tmp_path).found
    assert (found["weights_gb"], found["transformers"]) == (28.0, 2)
    assert figures(tmp_path, bytes_per_value=4).found["weights_gb"] == 56.0


def test_text_encoders_are_added(tmp_path):
    write_model(tmp_path, MODELS["flux.1"])
    write_weights(tmp_path / "text_encoder" / "model.safetensors", {"w": ("BF16", [120, 1_000_000])})
    write_weights(tmp_path / "text_encoder_2" / "model.safetensors", {"w": ("BF16", [4760, 1_000_000])})
    assert figures(tmp_path).found["text_encoder_gb"] == 9.76


def test_quantised_weights_stay_as_they_are_stored(tmp_path):
    write_model(tmp_path, MODELS["flux.1"])
    tensors = {"w": ("F8_E4M3", [11000, 1_000_000]), "scale": ("F32", [500, 1_000_000])}
    write_weights(tmp_path / "transformer" / "diffusion_pytorch_model.safetensors", tensors)
    assert figures(tmp_path).found["weights_gb"] == 12.0


def test_a_missing_shard_is_named(tmp_path):
    write_model(tmp_path, MODELS["flux.1"])
    (tmp_path / "transformer" / "diffusion_pytorch_model.safetensors").unlink()
    index = tmp_path / "transformer" / "diffusion_pytorch_model.safetensors.index.json"
    write_json(index, {"weight_map": {"a": "part-1.safetensors"}})
    assert figures(tmp_path).of("weights_gb").missing == "transformer/part-1.safetensors is not there"


def test_a_shard_that_is_still_being_downloaded_is_cut_off(tmp_path):
    write_model(tmp_path, MODELS["flux.1"])
    path = tmp_path / "transformer" / "diffusion_pytorch_model.safetensors"
    write_weights(path, {"w": ("BF16", [1000])}, cut=1)
    assert "is cut off: its tensors end at byte" in figures(tmp_path).of("weights_gb").missing


# --- what is not there ------------------------------------------------------------------------------------------------


def test_a_key_that_is_not_there_is_named_and_not_guessed(tmp_path):
    write_model(tmp_path, MODELS["wan2.1-14b"])
    write_json(tmp_path / "transformer" / "config.json", {key: WAN[key] for key in WAN if key != "num_layers"})
    found = figures(tmp_path)
    assert found.of("layers").missing == "not found in transformer/config.json: key num_layers"
    assert found.of("heads").value == 40


def test_a_transformer_that_is_not_known_is_not_read(tmp_path):
    write_model(tmp_path, MODELS["wan2.1-14b"])
    write_json(tmp_path / "transformer" / "config.json", {**WAN, "_class_name": "NewTransformer"})
    missing = figures(tmp_path).of("heads").missing
    assert missing.startswith("transformer/config.json: no rule is known for the class NewTransformer; known are ")


def test_without_a_vae_there_are_no_tokens(tmp_path):
    write_model(tmp_path, MODELS["wan2.1-14b"])
    (tmp_path / "vae" / "config.json").unlink()
    assert figures(tmp_path).of("sequence_tokens").missing == "vae/config.json is not there"


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("{", "transformer/config.json is not JSON (Expecting property name"),
        ("[" * 100_000, "transformer/config.json is "),
        ("[1]", "transformer/config.json holds [1], not a map of keys"),
        ('{"_class_name": 7}', "transformer/config.json: no rule is known for the class (none is named)"),
        ('{"_class_name": "WanTransformer3DModel", "num_layers": -1}', "key num_layers holds -1, not a whole number"),
        ('{"_class_name": "WanTransformer3DModel", "num_layers": true}', "key num_layers holds true, not a whole"),
        ('{"_class_name": "WanTransformer3DModel", "num_layers": 1e999}', "key num_layers holds Infinity, not a whole"),
        ('{"_class_name": "WanTransformer3DModel", "num_layers": "\\u001b[2J"}', "key num_layers holds "),
        (
            '{"_class_name": "WanTransformer3DModel", "num_layers": ' + "9" * 5000 + "}",
            "is not JSON (Exceeds the limit",
        ),
    ],
)
def test_hostile_configurations_are_one_line(tmp_path, text, missing):
    write_model(tmp_path, MODELS["wan2.1-14b"])
    (tmp_path / "transformer" / "config.json").write_text(text)
    said = figures(tmp_path).of("layers").missing
    assert missing in said
    assert said.isprintable()
    assert len(said) < 600


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    write_model(tmp_path, MODELS["wan2.1-14b"])
    (tmp_path / "vae" / "config.json").write_text(" " * (4 << 20) + "{}")
    assert figures(tmp_path).of("sequence_tokens").missing == "vae/config.json is larger than 4 MiB"


@pytest.mark.parametrize(
    ("data", "missing"),
    [
        (b"", "it ends within its first eight bytes"),
        (b"\xff" * 16, "a header of 18446744073709551615 bytes in a file of 16"),
        (b"\x02" + bytes(7) + b"[]", "its header is no map of tensors"),
        (b"\x0a" + bytes(7) + b'{"w": {} }', "tensor 'w' has no 'dtype'"),
    ],
)
def test_a_file_of_weights_that_is_none_is_said(tmp_path, data, missing):
    write_model(tmp_path, MODELS["wan2.1-14b"])
    (tmp_path / "transformer" / "diffusion_pytorch_model.safetensors").write_bytes(data)
    assert missing in figures(tmp_path).of("weights_gb").missing


def test_a_folder_that_is_no_pipeline_tells_nothing(tmp_path):
    assert figures(tmp_path).found == {}


# --- beside the configuration -----------------------------------------------------------------------------------------


def test_sizes_may_be_rounded_and_counts_may_not(tmp_path):
    write_model(tmp_path, MODELS["wan2.1-14b"])
    path = tmp_path / "transformer" / "diffusion_pytorch_model.safetensors"
    write_weights(path, {"w": ("BF16", [14288, 1_000_000])})
    model = ModelSettings(layers=40, heads=40, head_dim=128, sequence_tokens=32761, weights_gb=28, cross_attention=True)
    asked = {"width": 832, "height": 480, "frames": 81, "guidance_scale": 5.0}
    differing = [one for one in compare(model, figures(tmp_path, **asked)) if one.differs]
    assert [(one.figure.key, one.configured, one.figure.value) for one in differing] == [
        ("sequence_tokens", 32761, 32760),
        ("guidance_branches", 1, 2),
    ]


def test_a_hub_name_is_found_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    stored = tmp_path / "models--org--wan"
    write_model(stored / "snapshots" / "abc", MODELS["wan2.1-14b"])
    (stored / "refs").mkdir()
    (stored / "refs" / "main").write_text("abc")
    assert collect("org/wan")["folder"] == str(stored / "snapshots" / "abc")
    assert figures(Path("org/wan")).found["layers"] == 40
    assert collect("org/other") == {
        "folder": "",
        "looked": [str(Path("org/other").absolute()), str(tmp_path / "models--org--other")],
        "texts": {}, "weights": {}, "problems": {},
    }  # fmt: skip


def test_a_second_part_without_a_class_is_no_part():
    index = {"transformer": ["diffusers", "T"], "transformer_2": [None, None]}
    text = json.dumps({"folder": "/m", "looked": [], "texts": {"model_index.json": json.dumps(index)},
                      "weights": {}, "problems": {}})  # fmt: skip
    assert parse_folder(text).parts("transformer") == ("transformer",)


def test_a_part_whose_name_is_no_name_is_no_part():
    named = ["diffusers", "T"]
    index = {"transformer": named, "transformer\nhost: {}": named, "transformer/../..": named}
    collected = {"folder": "/m", "looked": [], "texts": {"model_index.json": json.dumps(index)}}
    folder = parse_folder(json.dumps({**collected, "weights": {}, "problems": {}}))
    assert folder.parts("transformer") == ("transformer",)


@pytest.mark.parametrize("said", ["", "no JSON", "[]", '{"folder": 7}', "Traceback\n{"])
def test_what_is_no_list_of_files_is_one_line(said):
    with pytest.raises(HostError, match=r"^engine\.python: the model's files cannot be listed \("):
        parse_folder(said)
