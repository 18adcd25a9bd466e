"""Questions about data: what memory held at an op, who wrote it, and whether it is right."""
