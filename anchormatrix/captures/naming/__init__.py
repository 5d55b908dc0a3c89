"""What says which kernels are communication: the table of names, C++ names, launching operators, findings."""
