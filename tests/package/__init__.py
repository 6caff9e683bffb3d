"""What is distributed: the wheel, the archive of the sources, and the bill of materials."""
