"""One file is one way to tell people."""
