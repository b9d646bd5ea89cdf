"""Plans, coupons, customers and subscriptions."""
