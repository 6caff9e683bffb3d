"""Further sections of the report: what each keeps of a query, and what it tells of all."""
