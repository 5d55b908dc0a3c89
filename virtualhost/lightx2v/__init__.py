"""LightX2V's server as the virtual host speaks it: commit f8aee98, the runner of Qwen-Image."""
