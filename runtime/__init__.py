"""What any long-running process needs; it knows no GPU, no bus and no anomaly."""
