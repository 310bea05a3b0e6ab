"""The demo: a real leak among healthy neighbours on this machine, and what became of it."""
