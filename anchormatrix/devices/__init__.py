"""The vendors' devices: how their tools' text becomes cards, links and processes."""
