"""The dummy run's transformer and how it is split over ranks."""
