"""Taxes that a seller declares, and the policy that they, the seller and a customer make."""
