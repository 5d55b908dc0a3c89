"""Checkpoints in diffusers' layout with random weights and tiny dimensions: Z-Image (pictures), Wan 2.1 T2V (videos).

The server knows a pipeline by the name of its folder, so the folders are named as the models are. The same seed gives
the same files; the server's own code loads them and computes with them.

Example:
  .venv-sglang/bin/python -m sglang_cpu.checkpoints --directory .venv-sglang/models
"""

import argparse
import json
from pathlib import Path

import torch
from diffusers import (
    AutoencoderKL,
    AutoencoderKLWan,
    FlowMatchEulerDiscreteScheduler,
    UniPCMultistepScheduler,
    WanPipeline,
    WanTransformer3DModel,
    ZImagePipeline,
    ZImageTransformer2DModel,
)
from transformers import Qwen2Tokenizer, Qwen3Config, Qwen3ForCausalLM, T5Tokenizer, UMT5Config, UMT5EncoderModel
from transformers.convert_slow_tokenizer import bytes_to_unicode

SEED = 42
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def z_image():
    """A Z-Image pipeline of 4 layers, 8 heads of 32 channels, and its Qwen3 text encoder of 3 layers."""
    heads, head_dim, text_dim = 8, 32, 64
    letters = {letter: number for number, letter in enumerate(bytes_to_unicode().values())}
    tokenizer = Qwen2Tokenizer(
        vocab=letters | {token: len(letters) + number for number, token in enumerate(SPECIAL)},
        merges=[],
        pad_token=SPECIAL[0],
        eos_token=SPECIAL[2],
        extra_special_tokens=list(SPECIAL[1:2]),
        chat_template=CHAT,
    )
    text_encoder = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=320,
            hidden_size=text_dim,
            intermediate_size=128,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
        )
    )
    transformer = ZImageTransformer2DModel(
        dim=heads * head_dim,
        n_layers=4,
        n_refiner_layers=1,
        n_heads=heads,
        n_kv_heads=heads,
        cap_feat_dim=text_dim,
        axes_dims=[8, 12, 12],
        axes_lens=[1024, 512, 512],
    )
    # SGLang reads these two under its own names (multimodal_gen/configs/models/dits/zimage.py).
    transformer.register_to_config(num_attention_heads=heads, num_layers=4)
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(16, 16, 32, 32),
        layers_per_block=1,
        latent_channels=16,
        norm_num_groups=8,
        scaling_factor=0.3611,
        shift_factor=0.1159,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )
    return ZImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=with_weights(vae),
        text_encoder=with_weights(text_encoder),
        tokenizer=tokenizer,
        transformer=with_weights(transformer),
    )


def wan():
    """A Wan 2.1 text-to-video pipeline of 2 layers, 4 heads of 64 channels, and its UMT5 text encoder of 2 layers."""
    heads, head_dim, text_dim = 4, 64, 64
    letters = [
        "<pad>",
        "</s>",
        "<unk>",
        *(f"<extra_id_{number}>" for number in range(100)),
        "▁",
        *map(chr, range(33, 127)),
    ]
    tokenizer = T5Tokenizer(vocab=[(letter, -1.0) for letter in letters])
    text_encoder = UMT5EncoderModel(
        UMT5Config(vocab_size=320, d_model=text_dim, d_kv=16, d_ff=128, num_layers=2, num_heads=4)
    )
    transformer = WanTransformer3DModel(
        num_attention_heads=heads,
        attention_head_dim=head_dim,
        text_dim=text_dim,
        freq_dim=64,
        ffn_dim=512,
        num_layers=2,
        cross_attn_norm=True,
    )
    return WanPipeline(
        tokenizer=tokenizer,
        text_encoder=with_weights(text_encoder),
        vae=with_weights(AutoencoderKLWan(base_dim=16)),
        scheduler=UniPCMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, num_train_timesteps=1000, flow_shift=3.0
        ),
        transformer=with_weights(transformer),
    )


def with_weights(module):
    """The module with every parameter drawn anew: some classes leave memory as they found it."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            last = name.rpartition(".")[2]
            if last == "gamma" or (last == "weight" and parameter.ndim == 1):
                parameter.fill_(1.0)
            elif parameter.ndim == 1:
                parameter.zero_()
            else:
                parameter.normal_(std=parameter[0].numel() ** -0.5)
    return module.eval()


MODELS = {"Z-Image-Turbo": z_image, "Wan2.1-T2V-1.3B-Diffusers": wan}


def make(directory):
    """Write the models that are not there yet; a folder appears whole or not at all."""
    for name, build in MODELS.items():
        if (directory / name).exists():
            continue
        torch.manual_seed(SEED)
        unfinished = directory / f"{name}.unfinished"
        pipeline = build()
        pipeline.to(torch.bfloat16).save_pretrained(unfinished)
        size = sum(parameter.numel() for parameter in pipeline.transformer.parameters())
        unfinished.rename(directory / name)
        print(json.dumps({"model": str(directory / name), "transformer_parameters": size}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, required=True, help="folder for the models, one folder each")
    make(parser.parse_args().directory)
