"""LightX2V's own server without a model: its argument parser, ranks, groups, routes, tasks, timers and denoise loop, on
a CPU over gloo, with a transformer, a text encoder and a decoder that only wait. Run as ``python -m lightx2v_bare`` or
under torchrun in place of ``-m lightx2v.server``, with LightX2V's source and this folder on PYTHONPATH.

``lightx2v/__init__.py`` imports every model and its kernels, so the packages are entered without theirs; a platform
``cpu`` is registered, which LightX2V does not have.
"""

from __future__ import annotations

import importlib.util
import sys
import time
import types
from pathlib import Path


def _enter(name: str, folder: Path) -> None:
    module = types.ModuleType(name)
    module.__path__ = [str(folder)]
    sys.modules[name] = module


_SOURCE = Path(next(iter(importlib.util.find_spec("lightx2v").submodule_search_locations)))  # type: ignore[union-attr, arg-type]
for _name in ("", ".utils", ".models", ".models.runners", ".models.runners.z_image", ".models.runners.qwen_image"):
    _enter(f"lightx2v{_name}", _SOURCE.joinpath(*_name.split(".")))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from lightx2v_platform.base import global_var  # noqa: E402
from lightx2v_platform.registry_factory import PLATFORM_DEVICE_REGISTER  # noqa: E402

global_var.AI_DEVICE, global_var.PLATFORM = "cpu", "cpu"
torch.cpu.empty_cache = lambda: None
torch.cpu.mem_get_info = lambda: (1 << 40, 1 << 40)


@PLATFORM_DEVICE_REGISTER("cpu")
class CpuDevice:
    """A platform of processors: gloo between the ranks."""

    @staticmethod
    def get_device() -> str:
        """The name of torch's device."""
        return "cpu"

    @staticmethod
    def init_parallel_env() -> None:
        """The process group of all ranks."""
        dist.init_process_group(backend="gloo")


from lightx2v.models.runners.qwen_image.qwen_image_runner import QwenImageRunner  # noqa: E402
from lightx2v.models.runners.z_image.z_image_runner import ZImageRunner  # noqa: E402
from PIL import Image  # noqa: E402


class _Transformer:
    def set_scheduler(self, scheduler: object) -> None:
        self.scheduler = scheduler

    def infer(self, inputs: object) -> None:
        time.sleep(0.02)
        self.scheduler.noise_pred = torch.zeros_like(self.scheduler.latents)  # type: ignore[attr-defined]


class _ZImageEncoder:
    def infer(self, texts: list[str]) -> tuple[list[torch.Tensor], None]:
        time.sleep(0.01)
        return [torch.zeros(len(text), 4) for text in texts], None


class _QwenImageEncoder:
    def infer(self, texts: list[str]) -> tuple[torch.Tensor, None, None]:
        time.sleep(0.01)
        return torch.zeros(1, max(1, len(texts[0])), 4), None, None


class _Decoder:
    def decode(self, latents: torch.Tensor, info: object) -> list[Image.Image]:
        time.sleep(0.01)
        pixels = (latents.float().flatten()[:256] * 40 + 128).clamp(0, 255).to(torch.uint8)
        return [Image.fromarray(pixels.reshape(16, 16).numpy())]


class BareZImage(ZImageRunner):
    """Z-Image's own runner and scheduler, with nothing to load."""

    def load_model(self) -> None:
        """Models that only wait."""
        self.model, self.text_encoders, self.vae = _Transformer(), [_ZImageEncoder()], _Decoder()


class BareQwenImage(QwenImageRunner):
    """Qwen-Image's own runner and scheduler, with nothing to load."""

    def load_model(self) -> None:
        """Models that only wait."""
        self.model, self.text_encoders, self.vae = _Transformer(), [_QwenImageEncoder()], _Decoder()


def init_runner(config: dict) -> ZImageRunner | QwenImageRunner:
    """The engine's own function of this name, for the runners that are here (``lightx2v/infer.py:63``)."""
    torch.set_grad_enabled(False)
    runner = {"z_image": BareZImage, "qwen_image": BareQwenImage}[config["model_cls"]](config)
    runner.init_modules()
    return runner


_infer = types.ModuleType("lightx2v.infer")
_infer.init_runner = init_runner  # type: ignore[attr-defined]
sys.modules["lightx2v.infer"] = _infer

from lightx2v.server.__main__ import main  # noqa: E402

if __name__ == "__main__":
    main()
