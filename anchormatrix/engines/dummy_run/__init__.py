"""The dummy run: a real diffusion transformer with random weights, split over ranks, behind the serving protocol.

The server process (``__main__``, ``server``, ``workers``) uses the standard library only and starts one rank process
per card; the ranks (``rank``, ``parallel``, ``pipeline``, …) need torch and diffusers, which live in the dummy run's
own environment.
"""
