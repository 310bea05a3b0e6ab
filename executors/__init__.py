"""One file is one scheduler or mechanism that can carry out a command."""
