"""The composition root: the command line, and the one place where concrete parts meet."""
