"""What people look at: the story of a run, the live view of a terminal, the page of an incident."""
