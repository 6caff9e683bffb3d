"""Score tables, and what policies would have made of them. Needs the extra ``fit``; serving never imports it."""
