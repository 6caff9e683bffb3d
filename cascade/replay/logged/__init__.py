"""What decision records say of another policy than the one that made them."""
