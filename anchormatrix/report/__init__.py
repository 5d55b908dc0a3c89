"""The report: what a person is told, from the result files alone."""
