"""The plan of a run: groups, contracts, candidate forms, their order, reruns, the adaptive design."""
