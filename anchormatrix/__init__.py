"""Choose how to split a diffusion transformer over the cards of a shared accelerator host."""
