"""The size sweep of a card group's collectives."""
