"""The operators' page of the shadow."""
