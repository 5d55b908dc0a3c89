"""LightX2V's server: its launches under torchrun, its configuration file, its tasks and its log."""
