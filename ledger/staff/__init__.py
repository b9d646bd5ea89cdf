"""The operators' pages of credits, what every page is made of, and approvals by a second operator."""
