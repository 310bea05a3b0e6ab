"""What travels between processes: messages, their bytes, their topics and the ways they move."""
