"""Subscriptions change from earlier versions of a plan to its newest version: one order, and an amendment for each of them."""
