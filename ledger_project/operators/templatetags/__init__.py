"""Tags of the templates of operators' pages."""
