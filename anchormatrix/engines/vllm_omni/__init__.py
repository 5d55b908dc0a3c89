"""vllm-omni: its launches, its requests, and its log as the measurement."""
