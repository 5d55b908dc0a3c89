"""SGLang's diffusion server: its launches, its requests, its performance dump and its log."""
