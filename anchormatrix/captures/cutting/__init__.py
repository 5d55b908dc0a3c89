"""The denoise steps of a capture that covers whole requests: where each begins and ends, and by what that is known."""
