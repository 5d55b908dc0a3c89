"""One denoise step as kernels on cards and links."""
