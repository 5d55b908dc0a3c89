"""What a run measures: groups, contracts, candidate forms, their order, reruns, the adaptive design."""
