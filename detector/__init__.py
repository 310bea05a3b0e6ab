"""The heart: from samples to suspicions, incidents and decisions, as pure functions."""
