"""``report.html``: a report as one file that loads nothing. Needs the extra ``fit``."""
