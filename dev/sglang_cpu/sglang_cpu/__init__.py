"""An SGLang diffusion server without CUDA packages: operators of its kernel package in torch, and tiny checkpoints."""
