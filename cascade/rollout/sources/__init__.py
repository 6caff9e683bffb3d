"""Where the desired release is looked for."""
