"""What is shipped for deployment, held against the code."""
