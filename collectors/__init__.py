"""One file is one source of samples on a node; the agent runs them."""
