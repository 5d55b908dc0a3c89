"""The records: one module per kind of result file, frozen values and enums, no I/O."""
