"""A model's own files: what a folder in diffusers' layout tells of layers, heads, tokens, guidance and weights."""
