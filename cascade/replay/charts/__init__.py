"""Charts of a report, for its page and for PNGs. Needs the extra ``fit``."""
